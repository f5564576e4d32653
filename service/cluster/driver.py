"""The driver: gives jobs that wait in the database to workers of a cluster that are free.

The queue stays in the database, and a worker has one job at once: what Dask was given early would
wait behind a long search. Workers that no job waits for help those that are spread; once one waits,
a helper is recalled for it. Several drivers may share a database and a scheduler. Each shows itself
in its offers; those of a driver that has died, or not shown itself for long, are taken back by
another, and what the first does with them later changes nothing.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from tilewise.service.cluster.connection import Cluster, Task
from tilewise.service.cluster.facts import Facts
from tilewise.service.db.base import now
from tilewise.service.db.session import Sessions, reading, writing
from tilewise.service.db.tokens import digest
from tilewise.service.errors import PASSING
from tilewise.service.faults import Faults
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import claims, registry
from tilewise.service.jobs.lease import GRACE
from tilewise.service.jobs.rechecks import OffPeak
from tilewise.service.runs import helper_offers, offers
from tilewise.service.runs.offers import OfferedJob
from tilewise.service.workers.retiming import Retiming

Kind = tuple[tuple[str, ...], str]
"""What a worker can time: its targets and its toolchain."""

log = logging.getLogger(__name__)


def kind_of(facts: Facts) -> Kind:
    """Return the kind of work that a worker can do."""
    return facts.targets, facts.toolchain


def recall_for_waiting(
    sessions: Sessions, helpers: Mapping[str, Facts], idle: Collection[Kind]
) -> None:
    """Recall as many helpers as there are queued jobs that their workers could run.

    `idle` are the kinds of workers that no job waits for.
    """
    kinds: dict[Kind, set[str]] = {}
    for address, facts in helpers.items():
        kinds.setdefault(kind_of(facts), set()).add(address)
    for kind, addresses in kinds.items():
        if kind in idle:
            continue
        with reading(sessions) as session:
            waiting = offers.waiting(session, *kind)
        if not waiting:
            continue
        with writing(sessions) as session:
            recalled = helper_offers.recall(session, addresses, waiting)
        for address in recalled:
            log.info("the helper on %s is recalled, for a job that waits", address)


POLL_S = 0.25
BEAT_S = 3.0
UNSERVED_S = 5.0
MOST_MISSED = 2  # times that a worker may be missing from the scheduler's list
PAUSE_S = 5.0  # for a worker that has died
REST_S = 2.0  # for one that has helped, which may just have learnt that the search is over


@dataclass
class _Given:
    """A job that this driver has given to a worker."""

    offer: OfferedJob
    task: Task
    missed: int = 0


@dataclass
class _Due:
    """What is done now and then."""

    period_s: float
    at_s: float = field(default=0.0)

    def is_now(self) -> bool:
        if time.monotonic() < self.at_s:
            return False
        self.at_s = time.monotonic() + self.period_s
        return True


class Driver:
    """Give jobs to the workers of a cluster.

    A job fails once no worker has served its target for `unserved` of the driver's time.
    """

    def __init__(
        self,
        sessions: Sessions,
        cluster: Cluster,
        unserved: timedelta,
        off_peak: OffPeak | None = None,
    ) -> None:
        self._sessions, self._cluster = sessions, cluster
        self._unserved, self._began = unserved, now()
        self._me = me()
        self._given: dict[str, _Given] = {}
        self._shown: dict[str, str] = {}
        self._paused: dict[str, float] = {}
        self._rests: dict[str, float] = {}
        self._spares_until_s = 0.0
        self._faults = Faults(log)
        self._beats, self._shows = _Due(BEAT_S), _Due(registry.SEEN_EVERY.total_seconds())
        self._looks, self._retiming = _Due(UNSERVED_S), Retiming(sessions, off_peak=off_peak)

    def run(self, stopping: threading.Event) -> None:
        """Run until `stopping` is set; then return the assigned jobs to the queue."""
        while not stopping.wait(POLL_S):
            self.tick()
        self.stop()

    def tick(self) -> None:
        """Run all checks once; an error in one does not prevent the others."""
        for given in list(self._given.values()):
            with self._faults.guard(f"job {given.offer.job_id}"):
                self._settle_ended(given)
        with self._faults.guard("the lease of this driver"):
            self._beat()
        with self._faults.guard("the offers of other drivers"):
            self._take_over()
        with self._faults.guard("the scheduler"):
            workers = self._cluster.workers()
            for given in self._given.values():  # Dask waits for a worker that left to come back
                given.missed = 0 if given.offer.worker in workers else given.missed + 1
            with self._faults.guard("the list of live workers"):
                self._show(workers)
            with self._faults.guard("jobs that wait"):
                self._give(workers)
        with self._faults.guard("jobs that nobody serves"):
            self._note_unserved()

    def stop(self) -> None:
        """Return the jobs to the queue, and leave the cluster."""
        for given in list(self._given.values()):
            with self._faults.guard(f"job {given.offer.job_id}"):
                given.task.cancel()
                self._settle(given, None)
        self._cluster.close()

    def _settle_ended(self, given: _Given) -> None:
        outcome = given.task.outcome()
        if outcome is None and given.missed < MOST_MISSED:
            return
        if outcome is None:
            given.task.cancel()
        is_killed = outcome == "killed"
        if is_killed:
            self._paused[given.offer.worker] = time.monotonic() + PAUSE_S
        if given.offer.role == "helper":
            self._rests[given.offer.worker] = time.monotonic() + REST_S
        self._settle(given, f"the worker {given.offer.worker} was lost" if is_killed else None)
        log.info("job %d: its task on %s is over", given.offer.job_id, given.offer.worker)

    def _settle(self, given: _Given, why: str | None) -> None:
        key = digest(given.offer.token)
        with writing(self._sessions) as session:
            offers.settle(session, key, why)
        del self._given[key]

    def _beat(self) -> None:
        """Show that this driver lives; forget what others have taken over."""
        if not self._given or not self._beats.is_now():
            return
        with writing(self._sessions) as session:
            held = offers.beat(session, self._me, set(self._given))
        for key in set(self._given) - held:
            given = self._given.pop(key)
            log.warning("job %d was taken over by another driver", given.offer.job_id)
            given.task.cancel()

    def _take_over(self) -> None:
        """Take back the offers of drivers that are gone, not of those that an outage silenced."""
        try:
            with reading(self._sessions) as session:
                abandoned = offers.abandoned(session, self._me)
        except PASSING:
            self._spares_until_s = time.monotonic() + GRACE.total_seconds()
            raise
        if time.monotonic() < self._spares_until_s:
            return
        for key in abandoned:
            with writing(self._sessions) as session:
                offers.settle(session, key, None)
            log.warning("an offer of a driver that is gone was taken back")

    def _show(self, workers: dict[str, Facts]) -> None:
        """Keep the list of live workers, which the service shows."""
        gone = [address for address in self._shown if address not in workers]
        new = {address for address in workers if address not in self._shown}
        shown = set(workers) if self._shows.is_now() else new
        if not gone and not shown:
            return
        with writing(self._sessions) as session:
            for address in gone:
                registry.leave(session, self._shown[address])
            for address in shown:
                registry.show(session, workers[address].entry)
                measured = workers[address].measured
                if address in new and measured is not None:
                    registry.note_measured(session, workers[address].machine, measured)
        self._shown = {address: facts.owner for address, facts in workers.items()}

    def _give(self, workers: dict[str, Facts]) -> None:
        """Give each free worker the oldest job that it can run, else one that it can help."""
        with reading(self._sessions) as session:
            taken = offers.taken(session)
        free = {one: workers[one] for one in workers if one not in taken}
        free = {one: free[one] for one in free if not self._is_resting(one, self._paused)}
        spare, idle = self._offer(free, offers.has_job, offers.make)
        spread = {one: workers[one] for one in workers if taken.get(one) == "helper"}
        recall_for_waiting(self._sessions, spread, idle)
        rested = {one: spare[one] for one in spare if not self._is_resting(one, self._rests)}
        self._offer(rested, helper_offers.is_wanted, helper_offers.make)
        self._retiming.tick({kind_of(facts) for facts in spare.values()})

    def _offer(
        self,
        workers: dict[str, Facts],
        may: Callable[..., bool],
        make: Callable[..., OfferedJob | None],
    ) -> tuple[dict[str, Facts], set[Kind]]:
        """Offer each worker what `make` finds for it.

        Returns the workers for whose kinds there is nothing, as `may` says, and those kinds.
        """
        unwanted: set[Kind] = set()
        spare: dict[str, Facts] = {}
        for address, facts in workers.items():
            kind = kind_of(facts)
            if kind not in unwanted:
                with reading(self._sessions) as session:
                    if not may(session, *kind):
                        unwanted.add(kind)
            if kind in unwanted:
                spare[address] = facts
                continue
            with writing(self._sessions) as session:
                offer = make(session, address, *kind, self._me)
            if offer is not None:
                self._submit(offer, facts.toolchain)
        return spare, unwanted

    @staticmethod
    def _is_resting(address: str, until: dict[str, float]) -> bool:
        return time.monotonic() < until.get(address, 0.0)

    def _submit(self, offer: OfferedJob, toolchain: str) -> None:
        key = digest(offer.token)
        try:
            self._given[key] = _Given(offer, self._cluster.submit(offer, toolchain))
        except BaseException:
            with writing(self._sessions) as session:
                offers.settle(session, key, None)
            raise
        does = "helped by" if offer.role == "helper" else "on"
        log.info("job %d %s %s: %s", offer.job_id, does, offer.worker, offer.kind)

    def _note_unserved(self) -> None:
        if not self._looks.is_now():
            return
        with writing(self._sessions) as session:
            served = registry.served(session)
            failed = claims.note_unserved(session, served, self._unserved, self._began)
        if failed:
            log.warning("%d jobs failed, since nobody has served their targets", failed)
