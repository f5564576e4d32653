"""A thread that keeps a lease alive while its run computes."""

import logging
import threading
from types import TracebackType

from tilewise.service.db.session import Sessions, reading, writing
from tilewise.service.errors import PASSING, DatabaseError, LeaseLostError
from tilewise.service.faults import tell_once
from tilewise.service.jobs import lease
from tilewise.service.jobs.lease import Lease

PERIOD_S = 15.0
AGAIN_S = 1.0  # after a beat that failed: whoever finds the lease late may take it

log = logging.getLogger(__name__)


class Heartbeat:
    """Extends the lease of a run between `__enter__` and `__exit__`.

    A long compile ends no trial, so the trials alone cannot keep the lease.
    """

    def __init__(self, sessions: Sessions, held: Lease, period_s: float = PERIOD_S) -> None:
        self._sessions = sessions
        self._held = held
        self._period_s = period_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"lease of {held.name}", daemon=True)

    def __enter__(self) -> "Heartbeat":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def should_stop(self) -> bool:
        """Return whether the run was cancelled or taken over.

        While the database is unavailable nobody knows: the run goes on to its next write,
        which is refused if it has to be.
        """
        try:
            with reading(self._sessions) as session:
                return not lease.holds(session, self._held)
        except PASSING as error:
            tell_once(log, f"{self._held.name}: going on meanwhile: {error}")
            return False

    def _run(self) -> None:
        pause_s = self._period_s
        while not self._stopping.wait(pause_s):
            try:
                is_shown = self._beat(is_news=pause_s == self._period_s)
            except LeaseLostError:
                return  # `should_stop` informs the search
            pause_s = self._period_s if is_shown else min(AGAIN_S, self._period_s)

    def _beat(self, *, is_news: bool) -> bool:
        """Extend the lease; whether it is extended. A failure is logged where it is news."""
        try:
            with writing(self._sessions) as session:
                lease.beat(session, self._held)
        except LeaseLostError:
            raise
        except DatabaseError as error:
            if is_news:
                log.warning("%s: lease not extended: %s", self._held.name, error)
            return False
        except Exception:
            # Whatever it was, a thread that ended would cost the run its lease.
            log.exception("%s: lease not extended", self._held.name)
            return False
        return True
