"""Schedules: short tuples of frozen steps, outermost first, independent of the target."""

from kernels.schedule.computing import instruction_of, with_instruction
from kernels.schedule.legality import check_legal
from kernels.schedule.model import Schedule, fast_algorithm
from kernels.schedule.steps.algorithms import Strassen, Winograd
from kernels.schedule.steps.base import Step
from kernels.schedule.steps.copies import Pack, Prefetch
from kernels.schedule.steps.loops import Alternate, Divide, Parallel, Stream, Tile
from kernels.schedule.steps.register import (
    Instruction,
    Interleave,
    Jam,
    Register,
    Split,
    Sweep,
    Unroll,
)
from kernels.schedule.steps.stores import Nontemporal

__all__ = [
    "Alternate",
    "Divide",
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
