"""Schedules: short tuples of frozen steps, outermost first, independent of the target."""

from tilewise.kernels.schedule.computing import instruction_of, with_instruction
from tilewise.kernels.schedule.legality import check_legal
from tilewise.kernels.schedule.model import Schedule, fast_algorithm
from tilewise.kernels.schedule.steps.algorithms import Strassen, Winograd
from tilewise.kernels.schedule.steps.base import Step
from tilewise.kernels.schedule.steps.copies import Pack, Prefetch
from tilewise.kernels.schedule.steps.loops import Parallel, Stream, Tile
from tilewise.kernels.schedule.steps.register import (
    Instruction,
    Interleave,
    Jam,
    Register,
    Split,
    Sweep,
    Unroll,
)
from tilewise.kernels.schedule.steps.stores import Nontemporal

__all__ = [
    "Instruction",
    "Interleave",
    "Jam",
    "Nontemporal",
    "Pack",
    "Parallel",
    "Prefetch",
    "Register",
    "Schedule",
    "Split",
    "Step",
    "Strassen",
    "Stream",
    "Sweep",
    "Tile",
    "Unroll",
    "Winograd",
    "check_legal",
    "instruction_of",
    "with_instruction",
    "fast_algorithm",
]
