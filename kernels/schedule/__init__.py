"""Schedules: short tuples of frozen steps, outermost first, independent of the target.

`loop_nest` gives the loop nest that a schedule makes of a problem, and so says whether it is legal.
"""

from tilewise.kernels.schedule.apply import begin, check_legal, loop_nest
from tilewise.kernels.schedule.choices import chosen, with_panels_fetched
from tilewise.kernels.schedule.computing import instruction_of, with_instruction
from tilewise.kernels.schedule.model import Schedule, fast_algorithm
from tilewise.kernels.steps import (
    InstructionChoice,
    Interleave,
    Jam,
    Nontemporal,
    Pack,
    Parallel,
    Prefetch,
    Register,
    Split,
    Step,
    Strassen,
    Stream,
    Sweep,
    Tile,
    Unroll,
    Winograd,
)

__all__ = [
    "InstructionChoice",
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
    "begin",
    "check_legal",
    "chosen",
    "fast_algorithm",
    "instruction_of",
    "loop_nest",
    "with_instruction",
    "with_panels_fetched",
]
