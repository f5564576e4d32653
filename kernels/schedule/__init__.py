"""Schedules: short tuples of frozen steps, outermost first, independent of the target."""

from kernels.schedule.legality import check_legal
from kernels.schedule.model import Schedule
from kernels.schedule.steps import (
    Pack,
    Parallel,
    Prefetch,
    Register,
    Split,
    Step,
    Stream,
    Tile,
    Unroll,
)

__all__ = [
    "Pack",
    "Parallel",
    "Prefetch",
    "Register",
    "Schedule",
    "Split",
    "Step",
    "Stream",
    "Tile",
    "Unroll",
    "check_legal",
]
