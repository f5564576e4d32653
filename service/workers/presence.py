"""The registration of a pool, and the measurement of its machine while it is idle."""

import contextlib
import json
import logging
import subprocess
import sys
import time
from dataclasses import asdict
from datetime import timedelta

from tilewise.kernels.system.children import child_command, child_environment
from tilewise.kernels.system.typed_json import from_json
from tilewise.service.db.session import Sessions, reading, writing
from tilewise.service.errors import WorkerError
from tilewise.service.jobs import registry
from tilewise.service.jobs.registry import MachineSpeed, WorkerEntry

LIMIT_S = 60.0

log = logging.getLogger(__name__)


class PeakMeasurement:
    """A child process that measures this machine.

    It is to run while nothing is being timed: it keeps a core and the memory busy for some tenths
    of a second.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._child = subprocess.Popen(
            child_command("tilewise.service.workers.presence"),
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def result(self) -> MachineSpeed | None:
        """Return its result, or None while it runs; raise WorkerError on failure."""
        if self._child.poll() is None:
            if time.monotonic() - self._began < LIMIT_S:
                return None
            self.stop()
            raise WorkerError(f"measuring this machine's peaks took over {LIMIT_S:.0f} s")
        return self._read()

    def wait(self) -> MachineSpeed:
        """Wait for the measurement and return it; raise as `result`."""
        found = None
        while found is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(1.0)
            found = self.result()
        return found

    def _read(self) -> MachineSpeed:
        text, _ = self._child.communicate()
        try:
            return from_json(MachineSpeed, json.loads(text))
        except ValueError as error:
            raise WorkerError("this machine's peaks could not be measured") from error

    def stop(self) -> None:
        """End the child."""
        self._child.kill()
        self._child.communicate()


def measured() -> MachineSpeed:
    """Measure the peaks and the bandwidth of one thread, which loads LLVM."""
    from tilewise.kernels.native.microbench import bandwidth_gbs, measure_rates, peak_gflops
    from tilewise.kernels.problem import DTYPES
    from tilewise.kernels.target import detect

    target = detect()
    measure_rates(target)  # kept for the searches of this machine
    peaks = {dtype: round(peak_gflops(target, dtype), 2) for dtype in DTYPES}
    return MachineSpeed(peaks, round(bandwidth_gbs(target), 2))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(measured())))


PEAKS_KEPT = timedelta(days=7)


class Presence:
    """The registration of one pool, from its first `tick` to `leave`; used on one thread.

    `measures_peaks` renews old measurements of the machine.
    """

    def __init__(self, sessions: Sessions, entry: WorkerEntry, *, measures_peaks: bool) -> None:
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
        """Delete the row of the pool."""
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
