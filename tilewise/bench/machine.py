"""The machine that a table was measured on."""

import os
import platform
from pathlib import Path

from tilewise.kernels.target.model import Target
from tilewise.schema.base import Json


def describe(target: Target, peers: tuple[str, ...]) -> Json:
    """Return processor, memory, bandwidth, and the versions of the peers and the toolchain."""
    from tilewise.kernels.native.microbench import bandwidth_gbs
    from tilewise.kernels.system.toolchain import identity
    from tilewise.search.peers.screen import VERSIONS

    return {
        "processor": processor(),
        "target": target.canonical,
        "cores": target.cores,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "caches": {"l1": target.l1_bytes, "l2": target.l2_bytes, "l3": target.l3_bytes},
        "bandwidth_gbs": bandwidth_gbs(target),
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "toolchain": identity(),
        "peers": {name: VERSIONS[name]() for name in peers},
    }


def processor() -> str:
    """Return the processor's name as the system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
