"""The embedded workers: a thread that keeps claimed jobs running in child processes."""

import contextlib
import logging
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from kernels.process import ONE_THREAD, child_command, child_environment
from service import lease
from service.db.session import Sessions, reading, writing
from service.errors import DatabaseError
from service.owner import me

POLL_S = 1.0
GRACE_S = 10.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Work:
    """Which jobs a pool takes, and how it runs them.

    Attributes:
        targets, toolchain: what the workers can time.
        workers: most jobs at once; 0 takes none.
        arguments: further arguments of `service.worker`.
    """

    targets: tuple[str, ...]
    toolchain: str
    workers: int
    arguments: Sequence[str] = ()


class Pool:
    """Claims jobs and runs each in a child process that ends with this one.

    Between `start` and `stop` one thread looks after the children: the kernel ends a
    child with the thread that started it, so that thread has to last.
    """

    def __init__(self, sessions: Sessions, url: str, work: Work, poll_s: float = POLL_S) -> None:
        self._sessions = sessions
        self._url = url
        self._work = work
        self._poll_s = poll_s
        self._owner = me()
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._stopping = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pool", daemon=True)

    @property
    def is_alive(self) -> bool:
        """Whether jobs are being taken."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin to take jobs."""
        self._thread.start()

    def wake(self) -> None:
        """Look for jobs now, rather than at the next poll."""
        self._wake.set()

    def stop(self) -> None:
        """End the children and give their jobs back to the queue."""
        self._stopping = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(DatabaseError), writing(self._sessions) as session:
            lease.retire(session, self._work.targets, self._work.toolchain)
        failing = False
        while not self._stopping:
            try:
                self._tick()
                failing = False
            except DatabaseError as error:
                if not failing:  # once, not once a second
                    log.error("workers wait for the database: %s", error)
                failing = True
            self._wake.wait(self._poll_s)
            self._wake.clear()
        self._end_all()

    def _tick(self) -> None:
        self._reap()
        self._end_lost()
        while len(self._children) < self._work.workers and not self._stopping:
            if not self._start_next():
                return

    def _reap(self) -> None:
        """Take note of children that ended; one that left its job running has crashed."""
        for job_id, child in list(self._children.items()):
            code = child.poll()
            if code is None:
                continue
            _sweep(child)
            with writing(self._sessions) as session:
                lease.crash(session, job_id, self._owner, _reason(code))
            del self._children[job_id]

    def _end_lost(self) -> None:
        """End children whose job was cancelled or taken over."""
        with reading(self._sessions) as session:
            lost = [
                job_id for job_id in self._children if not lease.holds(session, job_id, self._owner)
            ]
        for job_id in lost:
            _end(self._children[job_id])
            del self._children[job_id]

    def _start_next(self) -> bool:
        with writing(self._sessions) as session:
            job = lease.claim(session, self._owner, self._work.targets, self._work.toolchain)
        if job is None:
            return False
        try:
            self._children[job.id] = self._spawn(job.id)
        except OSError as error:  # no memory, no processes left: later, perhaps
            log.error("job %d: no worker could be started: %s", job.id, error)
            self._give_back(job.id)
            return False
        log.info("job %d: %s", job.id, job.problem.canonical)
        return True

    def _spawn(self, job_id: int) -> subprocess.Popen[bytes]:
        # The URL may hold a password, and a command line is public.
        return subprocess.Popen(
            child_command(
                "service.worker",
                f"--job={job_id}",
                f"--owner={self._owner}",
                f"--parent={os.getpid()}",
                *self._work.arguments,
            ),
            # The search's own matrices are small: threads would spin where candidates are timed.
            env=child_environment(TILEWISE_DB=self._url, **ONE_THREAD),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _end_all(self) -> None:
        for job_id, child in self._children.items():
            _end(child)
            with contextlib.suppress(DatabaseError):
                self._give_back(job_id)
        self._children.clear()

    def _give_back(self, job_id: int) -> None:
        with writing(self._sessions) as session:
            lease.release(session, job_id, self._owner)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ask a child to end, then make it, with whatever it has started."""
    child.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(GRACE_S)
    _sweep(child)
    child.wait()


def _sweep(child: subprocess.Popen[bytes]) -> None:
    """Kill the child's process group: itself, and what it started and left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _reason(code: int) -> str:
    if code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit status {code}; its log says more"
