"""A pool shows itself in the database, and has its machine measured while there is time."""

import time
from datetime import timedelta

from tilewise.service.db.session import Sessions, reading, writing
from tilewise.service.errors import WorkerError
from tilewise.service.jobs import registry
from tilewise.service.jobs.registry import Entry
from tilewise.service.workers.peaks import PeakMeasurement

PEAKS_KEPT = timedelta(days=7)


class Presence:
    """The entry of one pool, from its first `tick` to `leave`; used on one thread.

    Args:
        sessions: of the database.
        entry: what is entered.
        measures_peaks: whether the machine's peaks are measured, if they were not of late.
    """

    def __init__(self, sessions: Sessions, entry: Entry, *, measures_peaks: bool) -> None:
        self._sessions = sessions
        self._entry = entry
        self._next_s = 0.0
        self._wants_peaks = measures_peaks
        self._measurement: PeakMeasurement | None = None

    def tick(self, *, is_idle: bool) -> None:
        """Show that the pool lives; measure while it is idle, and at no other time."""
        if time.monotonic() >= self._next_s:
            with writing(self._sessions) as session:
                registry.show(session, self._entry)
            self._next_s = time.monotonic() + registry.SEEN_EVERY.total_seconds()
        if not is_idle:
            self._stop_measuring()
        elif self._wants_peaks:
            self._measure()

    def leave(self) -> None:
        """Strike the pool off."""
        self._stop_measuring()
        with writing(self._sessions) as session:
            registry.leave(session, self._entry.owner)

    def _measure(self) -> None:
        if self._measurement is None:
            with reading(self._sessions) as session:
                self._wants_peaks = registry.needs_measuring(
                    session, self._entry.machine, PEAKS_KEPT
                )
            if self._wants_peaks:
                self._measurement = PeakMeasurement()
            return
        try:
            measured = self._measurement.result()
        except WorkerError:
            self._measurement, self._wants_peaks = None, False
            raise
        if measured is not None:
            self._measurement, self._wants_peaks = None, False
            with writing(self._sessions) as session:
                registry.note_measured(session, self._entry.machine, measured)

    def _stop_measuring(self) -> None:
        if self._measurement is not None:
            self._measurement.stop()
            self._measurement = None
