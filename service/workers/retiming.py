"""Measure noisy and stale results again while workers are idle."""

import logging
import time
from collections.abc import Iterable, Sequence

from tilewise.service.db.session import Sessions, reading, writing
from tilewise.service.jobs import queue, rechecks
from tilewise.service.jobs.rechecks import OffPeak
from tilewise.service.results import history

PERIOD_S = 60.0  # between two looks

log = logging.getLogger(__name__)


class Retiming:
    """Queue jobs for noisy results, every `PERIOD_S`, and for stale ones off peak.

    Used on one thread.
    """

    def __init__(self, sessions: Sessions, off_peak: OffPeak | None = None) -> None:
        self._sessions, self._off_peak = sessions, off_peak
        self._next_s = 0.0

    def tick(self, idle: Iterable[tuple[Sequence[str], str]]) -> None:
        """Queue one noisy or stale result for each kind of idle workers, if a look is due.

        `idle` are targets and toolchain of workers that no job waits for.
        """
        kinds = list(idle)
        if not kinds or time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + PERIOD_S
        for kind in kinds:
            with reading(self._sessions) as session:
                is_due = history.to_retime(session, *kind) is not None
            if not is_due:
                self._recheck(*kind)
                continue
            with writing(self._sessions) as session:
                job = queue.retime_one(session, *kind)
            if job is not None:
                log.info("job %d measures a noisy result again", job.id)

    def _recheck(self, targets: Sequence[str], toolchain: str) -> None:
        """Queue one stale result; the next follows once the workers are idle again."""
        if self._off_peak is None:
            return
        given = targets, toolchain, self._off_peak
        with reading(self._sessions) as session:
            if rechecks.to_recheck(session, *given) is None:
                return
        with writing(self._sessions) as session:
            job = rechecks.recheck_one(session, *given)
        if job is not None:
            self._next_s = 0.0
            log.info("job %d times a result of an earlier toolchain again", job.id)
