"""The kinds of micro-kernel that there are, and which of them a schedule asks for."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.microkernels.depthwise import Depthwise
from tilewise.kernels.native.microkernels.inner_product import InnerProduct
from tilewise.kernels.native.microkernels.microkernel import MicroKernel
from tilewise.kernels.native.microkernels.outer_product import OuterProduct
from tilewise.kernels.native.microkernels.skinny_gemm import SkinnyGemm
from tilewise.kernels.native.microkernels.transformed import TransformedProduct
from tilewise.kernels.nest import Nest, printed

KindT = TypeVar("KindT", bound=MicroKernel)

KINDS: list[type[MicroKernel]] = [
    TransformedProduct,
    Depthwise,
    SkinnyGemm,
    InnerProduct,
    OuterProduct,
]
"""In the order in which they are asked whether they serve a nest."""


def kind_of(nest: Nest) -> type[MicroKernel]:
    """Return the kind that a nest asks for: the first one that serves it.

    Raises:
        LoweringError: there is none for it.
    """
    for kind in KINDS:
        if kind.serves(nest):
            return kind
    raise LoweringError(
        f"{nest.problem}: no micro-kernel serves the schedule; its nest is\n"
        + "\n".join(printed(nest))
    )


def register_kind(kind: type[KindT]) -> type[KindT]:
    """Add a kind, which is asked before those that are there; a class decorator.

    Raises:
        ValueError: a kind has the name.
    """
    if any(one.__name__ == kind.__name__ for one in KINDS):
        raise ValueError(f"micro-kernel {kind.__name__!r}: the name is taken; give another")
    KINDS.insert(0, kind)
    return kind


@contextmanager
def registered(kind: type[MicroKernel]) -> Iterator[None]:
    """Add a kind for the duration of a `with` block."""
    register_kind(kind)
    try:
        yield
    finally:
        KINDS.remove(kind)
