"""The kinds of micro-kernel that there are, and which of them a schedule asks for."""

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.microkernels.inner_product import InnerProduct
from tilewise.kernels.native.microkernels.outer_product import OuterProduct
from tilewise.kernels.native.microkernels.specs import MicroKernel
from tilewise.kernels.native.microkernels.sweep.kind import SweepKernel
from tilewise.kernels.native.microkernels.transformed import TransformedProduct
from tilewise.kernels.native.microkernels.window.kind import Window
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule

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
