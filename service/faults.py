"""Log a recurring fault once."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from tilewise.service.errors import ClaimError, ServiceError


@lru_cache(maxsize=4096)  # messages; what is read again and again has no news
def tell_once(log: logging.Logger, message: str) -> None:
    """Log a warning, unless this process has done so recently."""
    log.warning(message)


class Faults:
    """Keep a loop running after errors, and log each error once until a success."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._present: dict[str, str] = {}

    @contextmanager
    def guard(self, what: str) -> Iterator[None]:
        """Run a step that concerns `what` (`job 3`); an exception ends the step alone."""
        try:
            yield
        except Exception as error:
            self.tell(what, error)
        else:
            self._present.pop(what, None)

    def tell(self, what: str, error: Exception) -> None:
        """Log a fault of `what`, unless it was the last that it had."""
        message = f"{type(error).__name__}: {error}"
        if self._present.get(what) == message:
            return
        self._present[what] = message
        # What was foreseen says all in its message; of anything else the place is wanted.
        is_foreseen = isinstance(error, ServiceError) and not isinstance(error, ClaimError)
        trace = None if is_foreseen else error
        self._log.error("%s: %s", what, error or message, exc_info=trace)
