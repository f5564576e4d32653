"""The embedded workers: a thread that keeps claimed jobs running in child processes."""

import logging
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tilewise.kernels.system.children import ONE_THREAD, end_group
from tilewise.service.db.models import Job
from tilewise.service.db.session import Sessions, reading, writing
from tilewise.service.errors import PASSING, ClaimError, WorkerError
from tilewise.service.faults import Faults
from tilewise.service.host.machine import MachineInfo
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import claims, lease
from tilewise.service.jobs.lease import GRACE, Lease
from tilewise.service.jobs.rechecks import OffPeak
from tilewise.service.jobs.registry import LOST_AFTER, WorkerEntry
from tilewise.service.runs.process import UNREACHABLE
from tilewise.service.workers.completion import end, reason_of, start
from tilewise.service.workers.presence import Presence
from tilewise.service.workers.retiming import Retiming

POLL_S = 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PoolWork:
    """Which jobs a pool takes, and how it runs them.

    `workers` is the number of parallel jobs. `machine` is registered as a live worker unless it is
    None. `measures_peaks` has the machine measured while it is idle. In the hours of `off_peak`
    idle workers time stale results again.
    """

    targets: tuple[str, ...]
    toolchain: str
    workers: int
    arguments: Sequence[str] = ()
    machine: MachineInfo | None = None
    measures_peaks: bool = False
    off_peak: OffPeak | None = None

    @property
    def kinds(self) -> list[tuple[tuple[str, ...], str]]:
        """Targets and toolchain of the workers; none where there are no workers."""
        return [(self.targets, self.toolchain)] if self.workers else []


class Pool:
    """Claims jobs, and runs each in a child process that ends with this one.

    Between `start` and `stop` one thread looks after the children: the kernel ends a
    child with the thread that started it, so that thread has to last. Whatever one job or the
    database does to it is logged, and it goes on with the others.
    """

    def __init__(
        self, sessions: Sessions, url: str, work: PoolWork, poll_s: float = POLL_S
    ) -> None:
        self._sessions = sessions
        self._url = url
        self._work = work
        self._poll_s = poll_s
        self._owner = me()
        self._children: dict[Lease, subprocess.Popen[bytes]] = {}
        self._faults = Faults(log)
        self._presence = self._make_presence()
        self._retires_at_s = [0.0, time.monotonic() + LOST_AFTER.total_seconds()]
        self._spares_until_s = 0.0
        self._retiming = Retiming(sessions, off_peak=work.off_peak)
        self._stopping = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pool", daemon=True)

    @property
    def is_alive(self) -> bool:
        """Whether jobs are being taken."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start to take jobs."""
        self._thread.start()

    def wake(self) -> None:
        """Poll for jobs now."""
        self._wake.set()

    def stop(self) -> None:
        """End the children and return their jobs to the queue."""
        self._stopping = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            self._tick()
            self._wake.wait(self._poll_s)
            self._wake.clear()
        self._end_all()
        if self._presence is not None:
            with self._faults.guard("the list of live workers"):
                self._presence.leave()

    def _make_presence(self) -> Presence | None:
        work = self._work
        if work.machine is None:
            return None
        entry = WorkerEntry(self._owner, work.machine, work.targets, work.toolchain, work.workers)
        return Presence(self._sessions, entry, measures_peaks=work.measures_peaks)

    def _tick(self) -> None:
        for held, child in list(self._children.items()):
            with self._faults.guard(held.name):
                self._look_after(held, child)
        with self._faults.guard("jobs of other toolchains"):
            self._retire()
        with self._faults.guard("the workers"):
            self._start_more()
            self._retiming.tick(() if self._children else self._work.kinds)
        if self._presence is not None:
            with self._faults.guard("the list of live workers"):
                self._presence.tick(is_idle=not self._children)

    def _look_after(self, held: Lease, child: subprocess.Popen[bytes]) -> None:
        """Count a child that died; end one whose job was cancelled or taken over.

        A child that lives keeps its job, however late its heartbeat is. One that ended for want
        of the database gives its job back, for that was no fault of the job's.
        """
        is_news = child.returncode is None
        code = child.poll()
        if code is None:
            with reading(self._sessions) as session:
                is_ours = lease.holds(session, held)
            if not is_ours:
                end(child)
                del self._children[held]
            return
        if is_news:  # later the number of its group may be another's
            end_group(child)
        with writing(self._sessions) as session:
            if code == UNREACHABLE:
                lease.release(session, held)
            else:
                lease.crash(session, held, reason_of(code))
        del self._children[held]

    def _retire(self) -> None:
        """Fail what waits for another toolchain, at first and once a dead service is seen as such.

        Not later, since its own service may start again.
        """
        if self._retires_at_s and time.monotonic() >= self._retires_at_s[0]:
            with writing(self._sessions) as session:
                claims.retire(session, self._work.targets, self._work.toolchain)
            del self._retires_at_s[0]

    def _start_more(self) -> None:
        """Start a job for each free worker; those that cannot be claimed wait for the next tick."""
        refused: set[int] = set()
        while len(self._children) < self._work.workers and not self._stopping:
            try:
                if not self._start_next(refused):
                    return
            except ClaimError as error:
                self._faults.tell(f"job {error.job_id}", error)
                refused.add(error.job_id)

    def _start_next(self, refused: set[int]) -> bool:
        try:
            claimed = self._claim(refused | {held.job_id for held in self._children})
        except PASSING:
            self._spares_until_s = time.monotonic() + GRACE.total_seconds()
            raise
        if claimed is None:
            return False
        held, job = claimed
        try:
            self._children[held] = self._spawn(held, job)
        except Exception as error:  # no memory, no processes left: later, perhaps
            self._give_back(held)
            raise WorkerError(f"{held.name}: no worker could be started: {error}") from error
        what = job.problem.canonical if job.plan is None else f"the plan of {job.plan.name}"
        log.info("%s, run %d: %s", held.name, held.epoch, what)
        return True

    def _claim(self, but: set[int]) -> tuple[Lease, Job] | None:
        """The lease of the next job, and the job; None where there is nothing to do."""
        with writing(self._sessions) as session:
            held = claims.claim(
                session,
                self._owner,
                self._work.targets,
                self._work.toolchain,
                but=but,
                spares_late=time.monotonic() < self._spares_until_s,
            )
            if held is None:
                return None
            job = session.get_one(Job, held.job_id)
            _ = job.plan  # loaded while the session is open
            return held, job

    def _spawn(self, held: Lease, job: Job) -> subprocess.Popen[bytes]:
        return start(
            "tilewise.service.workers",
            f"--job={held.job_id}",
            f"--kind={job.kind}",
            *self._work.arguments,
            f"--owner={held.owner}",
            f"--epoch={held.epoch}",
            # The URL may hold a password. The search's own matrices are small: threads would spin
            # where candidates are timed.
            environment={"TILEWISE_DB": self._url, **ONE_THREAD},
        )

    def _end_all(self) -> None:
        for held, child in self._children.items():
            with self._faults.guard(held.name):
                end(child)
                self._give_back(held)
        self._children.clear()

    def _give_back(self, held: Lease) -> None:
        with writing(self._sessions) as session:
            lease.release(session, held)
