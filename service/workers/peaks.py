"""The multiply-add peaks of this machine, measured in a child process (`python -m` this module)."""

import json
import logging
import subprocess
import sys
import time

from kernels.system.children import child_command, child_environment
from service.errors import WorkerError

LIMIT_S = 60.0

log = logging.getLogger(__name__)


class PeakMeasurement:
    """A child that measures, looked after by whoever has started it.

    It is to run while nothing is being timed: it keeps a core busy for a tenth of a second.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._child = subprocess.Popen(
            child_command("service.workers.peaks"),
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def result(self) -> dict[str, float] | None:
        """GFLOP/s by dtype; None while it runs.

        Raises:
            WorkerError: it failed, or took too long.
        """
        if self._child.poll() is None:
            if time.monotonic() - self._began < LIMIT_S:
                return None
            self.stop()
            raise WorkerError(f"measuring this machine's peaks took over {LIMIT_S:.0f} s")
        text, _ = self._child.communicate()
        try:
            found: dict[str, float] = json.loads(text)
        except ValueError as error:
            raise WorkerError("this machine's peaks could not be measured") from error
        return found

    def stop(self) -> None:
        """End the child."""
        self._child.kill()
        self._child.communicate()


def measured() -> dict[str, float]:
    """The peak of one thread in GFLOP/s by dtype; loads LLVM."""
    from kernels.native.microbench import peak_gflops
    from kernels.problem import DTYPES
    from kernels.target import detect

    target = detect()
    return {dtype: round(peak_gflops(target, dtype), 2) for dtype in DTYPES}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measured()))
