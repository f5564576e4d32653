"""The steps of schedules, a file each: fields, JSON, the check of a nest, and its rewrite.

`register_step` adds a step to those that schedules can have; a new one is a file here and its
import below, or a class of any other module that registers itself.
"""

from tilewise.kernels.steps.algorithm import AlgorithmStep, check_place
from tilewise.kernels.steps.base import (
    STEP_OF_CHOICE,
    STEPS,
    OperandName,
    Part,
    Place,
    Retired,
    Step,
    StepJson,
    StepPhase,
    kind_named,
    register_step,
    registered,
    step_from_json,
)
from tilewise.kernels.steps.fuse import Fuse
from tilewise.kernels.steps.instruction import InstructionChoice
from tilewise.kernels.steps.jam import Jam
from tilewise.kernels.steps.k_streams import KStreams
from tilewise.kernels.steps.nontemporal import Nontemporal
from tilewise.kernels.steps.pack import Pack
from tilewise.kernels.steps.parallel import Parallel
from tilewise.kernels.steps.prefetch import Prefetch
from tilewise.kernels.steps.register import Register
from tilewise.kernels.steps.skinny import MOST_ROWS_OF_B, Skinny
from tilewise.kernels.steps.split import Split
from tilewise.kernels.steps.strassen import Strassen
from tilewise.kernels.steps.stream import Stream
from tilewise.kernels.steps.tile import Tile, visited_alone
from tilewise.kernels.steps.unroll import Unroll
from tilewise.kernels.steps.winograd import Winograd

__all__ = [
    "MOST_ROWS_OF_B",
    "STEPS",
    "STEP_OF_CHOICE",
    "AlgorithmStep",
    "Fuse",
    "InstructionChoice",
    "KStreams",
    "Jam",
    "Nontemporal",
    "OperandName",
    "Pack",
    "Parallel",
    "Part",
    "StepPhase",
    "Place",
    "Prefetch",
    "Register",
    "Retired",
    "Split",
    "Step",
    "StepJson",
    "Strassen",
    "Stream",
    "Skinny",
    "Tile",
    "Unroll",
    "Winograd",
    "check_place",
    "kind_named",
    "register_step",
    "registered",
    "step_from_json",
    "visited_alone",
]
