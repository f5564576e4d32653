"""What the roofline allows a problem on the machine that has timed it."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import parse_target

LAST = "l3"


def roof(
    problem: str, target: str, cache: str, peak: float, machine: tuple[Mapping[str, Any], Any]
) -> float:
    """The lower of the peak and of what the memory feeds, in GFLOP/s.

    The memory counts where operands come from there: with cold caches, or when they are larger
    than the last cache. Its bandwidth is known of one thread alone.

    Args:
        problem: its canonical string.
        target: that it was timed for.
        cache: `hot` or `cold`.
        peak: multiply-adds, in GFLOP/s.
        machine: bytes of its caches by level, and its bandwidth in GB/s if it was measured.
    """
    caches, bandwidth = machine
    if not isinstance(bandwidth, int | float) or parse_target(target).threads != 1:
        return peak
    flops, size = _work(problem)
    last = caches.get(LAST)
    is_from_memory = cache == "cold" or (isinstance(last, int) and size > last)
    return min(peak, flops / size * bandwidth) if is_from_memory else peak


@lru_cache(maxsize=20_000)
def _work(problem: str) -> tuple[int, int]:
    asked = parse_problem(problem)
    return asked.flops, asked.bytes
