"""A PostgreSQL whose trials lie on a disk of 8 MiB of its own, which is filled and freed.

`python -m tests.service.surviving.full_disk FOLDER`, with mounts of its own (`unshare -m`): they go
with the process.
"""

import pwd
import subprocess
import sys
import threading
from pathlib import Path

from benchmarks.surviving.power_cut import JOBS, prepare
from benchmarks.surviving.server import USER, Server
from benchmarks.surviving.writer import trial
from tilewise.service.db import make_engine
from tilewise.service.db.session import make_sessions
from tilewise.service.errors import OutageError
from tilewise.service.jobs.trial_store import SqlTrialStore
from tilewise.service.runs.keeper import PatientTrials


def main(folder: Path) -> None:
    """Print what a trial is told while the disk is full, and how many are kept afterwards."""
    disk, filler = folder / "disk", folder / "disk" / "filler"
    with Server(folder / "server", ["fsync=off"]) as server:
        mount(disk)
        prepare(server.url())
        engine = make_engine(server.url())
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f"CREATE TABLESPACE small LOCATION '{disk}'")
            connection.exec_driver_sql("ALTER TABLE trials SET TABLESPACE small")
        store = SqlTrialStore(make_sessions(engine), JOBS[0])
        fill(filler)
        try:
            store.add(trial(JOBS[0], 0))
        except OutageError as error:
            print(error)
        freed = threading.Timer(0.5, filler.unlink)
        freed.start()
        PatientTrials(store, JOBS[0]).add(trial(JOBS[0], 0))
        freed.join()
        print("kept:", store.trials() == [trial(JOBS[0], 0)])
        engine.dispose()


def mount(disk: Path) -> None:
    owner = pwd.getpwnam(USER)
    options = f"size=8m,mode=0700,uid={owner.pw_uid},gid={owner.pw_gid}"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(disk)], check=True)


def fill(file: Path) -> None:
    """Write until there is no room."""
    with file.open("wb", buffering=0) as opened:
        try:
            while opened.write(bytes(4096)):
                pass
        except OSError:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
