"""Plans on a cluster: the driver claims those whose problems are tuned, and workers make them.

The driver holds the lease and writes what comes of it; a worker sees neither database nor service.
A driver that dies takes its leases with it, and another makes the plan again.
"""

import json
import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.system.typed_json import from_json, to_json
from tilewise.service.cluster.connection import Cluster, PlanTask
from tilewise.service.cluster.facts import Facts
from tilewise.service.cluster.plan_checks import check_made
from tilewise.service.db.models import JobKind
from tilewise.service.db.session import Sessions, reading, writing
from tilewise.service.errors import (
    DatabaseError,
    LeaseLostError,
    PlanError,
    ServiceError,
    UnreachableError,
)
from tilewise.service.faults import Faults
from tilewise.service.jobs import claims, lease, plans
from tilewise.service.jobs.lease import Lease
from tilewise.service.jobs.model_jobs import planning
from tilewise.service.jobs.plans import CHOOSING, Made, PlanOrder
from tilewise.service.runs import offers

KINDS: tuple[JobKind, ...] = ("model",)
BEAT_S = 3.0
MOST_MISSED = 2  # times that a worker may be missing from the scheduler's list
PAUSE_S = 5.0  # for a worker that has died, or could not even begin
OF_PLAN = (KernelsError, ServiceError)
NOT_OF_PLAN = (DatabaseError, UnreachableError, LeaseLostError)
"""Of what keeps a plan from being given, what would keep another from it too, or passes."""

UNREADABLE = (PlanError, KernelsError, ValueError, TypeError, ArithmeticError, RecursionError)
"""What reading and comparing an answer raises, whatever a worker sent."""

log = logging.getLogger(__name__)


@dataclass
class _Given:
    """A plan that a worker makes."""

    held: Lease
    worker: str
    host: str
    order: PlanOrder
    task: PlanTask
    missed: int = 0


class PlanGiving:
    """Plans that the workers of one driver make.

    `paused` holds until when workers get nothing, by address, in seconds of `time.monotonic`.
    """

    def __init__(
        self, sessions: Sessions, cluster: Cluster, owner: str, paused: dict[str, float]
    ) -> None:
        self._paused = paused
        self._sessions, self._cluster, self._owner = sessions, cluster, owner
        self._given: dict[str, _Given] = {}
        self._faults = Faults(log)
        self._beat_at_s = 0.0

    @property
    def busy(self) -> set[str]:
        """The workers that make plans, by address."""
        return set(self._given)

    def settle(self) -> None:
        """Store what has ended, and show that the others go on."""
        is_due = time.monotonic() >= self._beat_at_s
        if is_due:
            self._beat_at_s = time.monotonic() + BEAT_S
        for given in list(self._given.values()):
            with self._faults.kept_from(given.held.name):
                if given.task.is_over():
                    self._store(given)
                elif is_due:
                    self._beat(given)

    def note_missing(self, workers: Collection[str]) -> None:
        """A plan whose worker has left waits again."""
        for given in list(self._given.values()):
            given.missed = 0 if given.worker in workers else given.missed + 1
            if given.missed > MOST_MISSED:
                with self._faults.kept_from(given.held.name):
                    self._give_back(given)

    def give(self, workers: Mapping[str, Facts], *, spares_late: bool = False) -> None:
        """Have each free worker make a plan, if there is one for it.

        Plans come before jobs: somebody waits for them, and not for long.
        """
        with reading(self._sessions) as session:
            taken, makers = offers.taken(session), planning(session).values()
        for address, facts in workers.items():
            is_paused = time.monotonic() < self._paused.get(address, 0.0)
            is_busy = address in self._given or address in taken or facts.owner in makers
            if not is_busy and not is_paused:
                with self._faults.kept_from("plans that wait"):
                    self._give(address, facts, spares_late=spares_late)

    def stop(self) -> None:
        """Give all plans back."""
        for given in list(self._given.values()):
            with self._faults.kept_from(given.held.name):
                self._give_back(given)

    def _give(self, address: str, facts: Facts, *, spares_late: bool) -> None:
        mine = {given.held.job_id for given in self._given.values()}
        work = facts.targets, facts.toolchain
        with reading(self._sessions) as session:
            if not claims.may_claim(session, *work, kinds=KINDS, but=mine):
                return
        with writing(self._sessions) as session:
            held = claims.claim(
                session,
                self._owner,
                *work,
                kinds=KINDS,
                but=mine,
                spares_late=spares_late,
                worker=facts.owner,
            )
        if held is None:
            return
        try:
            with reading(self._sessions) as session:
                order, module = plans.read_order(session, plans.of_job(session, held.job_id).id)
            plans.note(self._sessions, held, CHOOSING, None)
            task = self._submitted(address, order, module)
            self._given[address] = _Given(held, address, facts.machine.host, order, task)
        except BaseException as error:
            is_of_plan = isinstance(error, OF_PLAN) and not isinstance(error, NOT_OF_PLAN)
            with writing(self._sessions) as session:
                if is_of_plan:
                    lease.end(session, held, state="failed", error=str(error))
                else:
                    lease.release(session, held)
            if is_of_plan:
                log.warning("%s fails: %s", held.name, error)
                return
            raise
        log.info("%s, run %d: on %s", held.name, held.epoch, address)

    def _submitted(self, address: str, order: PlanOrder, module: bytes) -> PlanTask:
        told = json.dumps(to_json(order))
        return self._cluster.submit_plan(address, order.target, told, module)

    def _beat(self, given: _Given) -> None:
        try:
            with writing(self._sessions) as session:
                lease.beat(session, given.held)
        except LeaseLostError as error:
            log.warning("%s", error)
            given.task.cancel()
            del self._given[given.worker]

    def _store(self, given: _Given) -> None:
        """End the plan of a task, or count that its maker has died."""
        held = given.held
        try:
            made = _read(given.task.result())
            if isinstance(made, Made):
                check_made(given.order, made)
                made = _marked(made, given.host)
        except UNREADABLE as error:
            self._paused[given.worker] = time.monotonic() + PAUSE_S
            with writing(self._sessions) as session:
                lease.crash(session, held, str(error))
        else:
            with writing(self._sessions) as session:
                if isinstance(made, Made):
                    plans.done(session, held, made)
                else:
                    lease.end(session, held, state="failed", error=made)
        del self._given[given.worker]
        log.info("%s: its task on %s is over", held.name, given.worker)

    def _give_back(self, given: _Given) -> None:
        given.task.cancel()
        with writing(self._sessions) as session:
            lease.release(session, given.held)
        del self._given[given.worker]


def _marked(made: Made, host: str) -> Made:
    """Return what was made, its proof marked with the machine whose word it is."""
    packed = made.packed
    if packed.proof is None:
        return made
    return replace(made, packed=replace(packed, proof={**packed.proof, "by": host}))


def _read(text: str) -> Made | str:
    """What was made, or why nothing can be; one of `UNREADABLE` where it is neither."""
    found = json.loads(text)
    if "died" in found:
        raise PlanError(found["died"])
    return str(found["refused"]) if "refused" in found else from_json(Made, found)
