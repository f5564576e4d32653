"""When this process began, so that a budget in seconds counts the loading of libraries too."""

import os
import time
from pathlib import Path

_START = 19  # of the fields behind the name in /proc/self/stat: ticks since the machine's start


def process_began() -> float:
    """The moment of `time.monotonic` at which this process began; now, where nobody knows."""
    now = time.monotonic()
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[_START]) / os.sysconf(
            "SC_CLK_TCK"
        )
    except (OSError, ValueError, IndexError, AttributeError):
        return now
    return now - age if age >= 0 else now
