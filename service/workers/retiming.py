"""Noisy results are measured again while workers have nothing else to do."""

import logging
import time
from collections.abc import Iterable, Sequence

from tilewise.service.db.session import Sessions, reading, writing
from tilewise.service.jobs import queue
from tilewise.service.results import history

PERIOD_S = 60.0  # between two looks

log = logging.getLogger(__name__)


class Retiming:
    """Queue jobs for noisy results, every `period_s`; used on one thread."""

    def __init__(self, sessions: Sessions, period_s: float = PERIOD_S) -> None:
        self._sessions, self._period_s = sessions, period_s
        self._next_s = 0.0

    def tick(self, idle: Iterable[tuple[Sequence[str], str]]) -> None:
        """Queue one noisy result for each kind of idle workers, if a look is due.

        `idle` are targets and toolchain of workers that no job waits for.
        """
        kinds = list(idle)
        if not kinds or time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + self._period_s
        for kind in kinds:
            with reading(self._sessions) as session:
                is_due = history.to_retime(session, *kind) is not None
            if not is_due:
                continue
            with writing(self._sessions) as session:
                job = queue.retime_one(session, *kind)
            if job is not None:
                log.info("job %d measures a noisy result again", job.id)
