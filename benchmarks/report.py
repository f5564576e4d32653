"""What a table of measurements has to say about the machine that it was made on."""

import os
import platform
from datetime import UTC, datetime

from tilewise.kernels.system.toolchain import identity
from tilewise.kernels.target import detect


def conditions() -> str:
    """Target, toolchain, processors and what they were busy with, on one line."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else "?"
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    return (
        f"# {detect().canonical}, {processors} processors, load {load:.1f}, "
        f"Python {platform.python_version()}, {identity()}, {when}"
    )
