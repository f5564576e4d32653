"""The forms of micro-kernels, and which of them serves a schedule."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.microkernels.depthwise import Depthwise
from tilewise.kernels.native.microkernels.inner_product import InnerProduct
from tilewise.kernels.native.microkernels.matrix_tiles import MatrixTiles
from tilewise.kernels.native.microkernels.microkernel import MicroKernel
from tilewise.kernels.native.microkernels.outer_product import OuterProduct
from tilewise.kernels.native.microkernels.skinny_gemm import SkinnyGemm
from tilewise.kernels.native.microkernels.transformed import TransformedProduct
from tilewise.kernels.native.microkernels.weight_only import WeightOnlyProduct
from tilewise.kernels.native.microkernels.widened_weights import WidenedProduct
from tilewise.kernels.nest import Nest, printed

KindT = TypeVar("KindT", bound=MicroKernel)

KINDS: list[type[MicroKernel]] = [
    WidenedProduct,
    WeightOnlyProduct,
    TransformedProduct,
    Depthwise,
    SkinnyGemm,
    MatrixTiles,
    InnerProduct,
    OuterProduct,
]
"""In the order in which they are tried."""


def kind_of(nest: Nest) -> type[MicroKernel]:
    """Return the form for a nest: the first one that serves it.

    Raises:
        LoweringError: none does.
    """
    for kind in KINDS:
        if kind.serves(nest):
            return kind
    raise LoweringError(
        f"{nest.problem}: no micro-kernel serves the schedule; its nest is\n"
        + "\n".join(printed(nest))
    )


def register_kind(kind: type[KindT]) -> type[KindT]:
    """Add a form, which is tried before those that are there; a class decorator.

    Raises:
        ValueError: a form has the name.
    """
    if any(one.__name__ == kind.__name__ for one in KINDS):
        raise ValueError(f"micro-kernel {kind.__name__!r}: the name is taken; give another")
    KINDS.insert(0, kind)
    return kind


@contextmanager
def registered(kind: type[MicroKernel]) -> Iterator[None]:
    """Add a form for the duration of a `with` block."""
    register_kind(kind)
    try:
        yield
    finally:
        KINDS.remove(kind)
