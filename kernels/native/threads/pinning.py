"""Which processors threads are pinned to: one of each core first, then its siblings."""

import os
from pathlib import Path

TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def usable_processors() -> list[int]:
    """Return the processors that this process may run on, those of different cores first."""
    if not hasattr(os, "sched_getaffinity"):
        return list(range(os.cpu_count() or 1))
    allowed = sorted(os.sched_getaffinity(0))
    first: list[int] = []
    second: list[int] = []
    seen = set()
    for processor in allowed:
        core = core_of(processor)
        (second if core in seen else first).append(processor)
        seen.add(core)
    return first + second


def pin(processors: set[int]) -> set[int] | None:
    """Pin the calling thread to `processors`; return those allowed before, if known."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    before = os.sched_getaffinity(0)
    if before != processors:
        os.sched_setaffinity(0, processors)
    return before


def core_of(processor: int) -> str:
    """Return a name that the processors of one core share."""
    try:
        return Path(TOPOLOGY.format(processor)).read_text().strip()
    except OSError:
        return str(processor)
