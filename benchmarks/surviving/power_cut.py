"""The power goes at a random moment while trials are committed: is every acknowledged one there?

    python -m benchmarks.surviving.power_cut [--cuts 50] [--synchronous FULL|NORMAL]

Two processes commit trials. At a random moment all that write are stopped (SIGSTOP) while an image
of the files is taken: nothing happens meanwhile, so that the image is that of a machine that lost
its power then. Of files that are being written a copy would have different moments. The image is
opened as a machine opens it that comes up, looked through for damage, and its trials are compared
with those that were acknowledged.

| image | has |
|---|---|
| `sqlite, all` | the files as the system has them, whether or not the disk has that |
| `sqlite, synced` | of each file what the disk had last been made to have, and nothing later |
| `postgresql, all` | the data directory as the system has it |

The synced image takes a C compiler: `syncs.c` notes what is brought to the disk. A disk that says
it has what it has not, is beyond all three.
"""

import argparse
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import psutil

from benchmarks.report import conditions
from benchmarks.surviving.server import Server, freeze, send
from benchmarks.surviving.writer import trial
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.system.children import child_command, child_environment
from tilewise.search.records import TuneRequest
from tilewise.service.db import make_engine, schema, writing
from tilewise.service.db.session import make_sessions
from tilewise.service.jobs import queue
from tilewise.service.jobs.trial_store import SqlTrialStore

JOBS = (1, 2)
LONGEST_S = 0.4  # between two cuts
STARTUP_S = 60.0


@dataclass
class Found:
    """What the images of one kind have told.

    Attributes:
        images: how many there were.
        acknowledged: trials that had been by then, over all images.
        lost: of those, the ones that an image lacks or has otherwise.
        damage: what was wrong with the files.
    """

    images: int = 0
    acknowledged: int = 0
    lost: int = 0
    damage: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Writers:
    """The processes that commit, with what they have said.

    Attributes:
        said: the file of each job.
    """

    processes: list[subprocess.Popen[bytes]]
    said: dict[int, Path]

    def acknowledged(self) -> dict[int, int]:
        """How many trials of each job were acknowledged."""
        return {job: path.read_bytes().count(b"\n") for job, path in self.said.items()}


def prepare(url: str) -> None:
    """Make the database, with a job for each writer."""
    schema.upgrade(url)
    engine = make_engine(url)
    with writing(make_sessions(engine)) as session:
        for number in JOBS:
            problem = parse_problem(f"matmul:m={number},n=8,k=8,dtype=f32")
            queue.create_or_join(session, problem, "cpu", TuneRequest(trials=1), "power cut")
    engine.dispose()


@contextmanager
def writers(url: str, folder: Path, synchronous: str, **environment: str) -> Iterator[Writers]:
    """Processes that commit trials, once each has; they are killed at the end."""
    made = Writers([], {job: folder / f"said{job}" for job in JOBS})
    for job, path in made.said.items():
        with path.open("wb") as file:
            command = child_command("benchmarks.surviving.writer", url, str(job), synchronous)
            environ = child_environment(**environment)
            made.processes.append(subprocess.Popen(command, stdout=file, env=environ))
    try:
        end = time.monotonic() + STARTUP_S
        while not all(made.acknowledged().values()):
            assert time.monotonic() < end, "the writers do not write"
            time.sleep(0.05)
        yield made
    finally:
        for process in made.processes:
            process.kill()
            process.wait()


def look(found: Found, url: str, acknowledged: dict[int, int]) -> None:
    """Compare what an image has with what was acknowledged."""
    engine = make_engine(url)
    schema.check(engine)
    sessions = make_sessions(engine)
    for job, count in acknowledged.items():
        kept = {one.number: one for one in SqlTrialStore(sessions, job).trials()}
        found.lost += sum(kept.get(number) != trial(job, number) for number in range(count))
        found.acknowledged += count
    engine.dispose()


def look_at_sqlite(found: Found, image: Path, acknowledged: dict[int, int]) -> None:
    """Look through an image of an SQLite database."""
    found.images += 1
    file = image / "tilewise.db"
    with sqlite3.connect(file) as connection:
        for check in ("integrity_check", "foreign_key_check"):
            said = connection.execute(f"PRAGMA {check}").fetchall()
            if said not in ([("ok",)], []):
                found.damage.append(f"{check}: {said[:3]}")
    connection.close()
    look(found, f"sqlite:///{file}", acknowledged)


def cut_sqlite(folder: Path, cuts: int, synchronous: str, chance: Random) -> dict[str, Found]:
    """Cut the power of writers to an SQLite database."""
    data, disk = folder / "data", folder / "disk"
    for made in (data, disk):
        made.mkdir()
    url = f"sqlite:///{data / 'tilewise.db'}"
    prepare(url)
    shutil.copy(data / "tilewise.db", disk)
    noting = compiled(folder)
    environment = {"LD_PRELOAD": str(noting), "SYNCS_OF": str(data), "SYNCS_TO": str(disk)}
    found = {"sqlite, all": Found(), **({"sqlite, synced": Found()} if noting else {})}
    with writers(url, folder, synchronous, **(environment if noting else {})) as writing_now:
        every = [psutil.Process(one.pid) for one in writing_now.processes]
        for number in range(cuts):
            time.sleep(chance.uniform(0.0, LONGEST_S))
            with frozen(every):
                acknowledged = writing_now.acknowledged()
                for kind, source in zip(found, (data, disk), strict=False):
                    image = copied(source, folder / f"{source.name}{number}")
                    look_at_sqlite(found[kind], image, acknowledged)
                    shutil.rmtree(image)
    return found


def copied(source: Path, image: Path) -> Path:
    """A copy of a database and its log; what processes share in memory is lost with the power."""
    image.mkdir()
    for name in ("tilewise.db", "tilewise.db-wal"):
        if (source / name).exists():
            shutil.copy(source / name, image)
    return image


def cut_postgresql(folder: Path, cuts: int, chance: Random) -> dict[str, Found]:
    """Cut the power of a PostgreSQL, whose log is so short that it is folded in all the time."""
    settings = ["max_wal_size=4MB", "min_wal_size=2MB", "checkpoint_timeout=30s"]
    found = Found()
    with Server(folder / "first", settings, segment_mib=1) as server:
        prepare(server.url())
        with writers(server.url(), folder, "FULL") as writing_now:
            for number in range(cuts):
                time.sleep(chance.uniform(0.0, LONGEST_S))
                server.freeze()
                acknowledged = writing_now.acknowledged()
                image = server.copied(folder / f"i{number}")
                look_at_postgresql(found, image, acknowledged)
                server.thaw()
                shutil.rmtree(image.data.parent)
    return {"postgresql, all": found}


def look_at_postgresql(found: Found, image: Server, acknowledged: dict[int, int]) -> None:
    """Look through an image of a PostgreSQL."""
    found.images += 1
    with image:
        look(found, image.url(), acknowledged)
        try:
            image.check()
        except RuntimeError as error:
            found.damage.append(str(error))


@contextmanager
def frozen(processes: list[psutil.Process]) -> Iterator[None]:
    """Processes that do nothing meanwhile."""
    freeze(processes)
    try:
        yield
    finally:
        send(processes, signal.SIGCONT)


def compiled(folder: Path) -> Path | None:
    """`syncs.c` as a library to preload; None where there is no C compiler, or no Linux."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        return None
    made, source = folder / "syncs.so", Path(__file__).with_name("syncs.c")
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(made), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cuts", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3)))
    parser.add_argument("--synchronous", default="FULL", help="of SQLite; NORMAL loses trials")
    options = parser.parse_args()
    chance = Random(options.seed)
    cut: tuple[Callable[[Path], dict[str, Found]], ...] = (
        lambda folder: cut_sqlite(folder, options.cuts, options.synchronous, chance),
        lambda folder: cut_postgresql(folder, options.cuts, chance),
    )
    print(conditions())
    print(f"seed {options.seed}, synchronous {options.synchronous}")
    print(f"{'image':<18} {'cuts':>5} {'acknowledged':>13} {'lost':>6} {'damaged':>8}")
    is_whole = True
    for run in cut:
        with tempfile.TemporaryDirectory(prefix="cut") as folder:
            for kind, found in run(Path(folder)).items():
                print(
                    f"{kind:<18} {found.images:>5} {found.acknowledged:>13} "
                    f"{found.lost:>6} {len(found.damage):>8}"
                )
                print("".join(f"  {what}\n" for what in found.damage), end="")
                is_whole = is_whole and not (found.lost or found.damage)
    return 0 if is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
