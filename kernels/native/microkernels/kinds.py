"""The kinds of micro-kernel that there are, and which of them a schedule asks for."""

from kernels.errors import LoweringError
from kernels.native.microkernels.inner_product import InnerProduct
from kernels.native.microkernels.outer_product import OuterProduct
from kernels.native.microkernels.specs import MicroKernel
from kernels.native.microkernels.sweep.kind import SweepKernel
from kernels.native.microkernels.transformed import TransformedProduct
from kernels.native.microkernels.window.kind import Window
from kernels.problem import Problem
from kernels.schedule import Schedule

KINDS: tuple[type[MicroKernel], ...] = (
    *(TransformedProduct, Window, SweepKernel),
    *(InnerProduct, OuterProduct),
)


def kind_of(problem: Problem, schedule: Schedule) -> type[MicroKernel]:
    """The kind that a schedule asks for.

    Raises:
        LoweringError: there is none for it.
    """
    for kind in KINDS:
        if kind.serves(problem, schedule):
            return kind
    raise LoweringError(f"no micro-kernel serves this schedule:\n{schedule}")
