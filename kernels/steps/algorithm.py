"""What both algorithms of fewer products share: their nest, and the order of what is put around it.

The order is no part of the meaning: any nest in which the stages of B and A come before the points
is right, and the interpreter runs it. It is what the code generator has a template for.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

from tilewise.kernels.nest import (
    Algorithm,
    Axis,
    Dim,
    Fetch,
    Loop,
    LoopKind,
    Nest,
    Node,
    Operand,
    Role,
    Stage,
    Term,
)
from tilewise.kernels.nest.problems import whole
from tilewise.kernels.problem import Problem
from tilewise.kernels.steps.base import Place, Step

POINT, TILES = "point", "t"
ELEMENTS = ("f32", "f64")
"""Floats that are as wide as their sums: transformed operands are of the same type."""


@dataclass(frozen=True)
class AlgorithmStep(Step):
    """A step that computes the same by fewer multiplications: what comes first in a schedule."""

    place: ClassVar[Place] = Place.ALGORITHM

    @property
    @abstractmethod
    def size(self) -> int:
        """Return the pixels of a tile, or the levels: what the rounding depends on."""

    @property
    @abstractmethod
    def label(self) -> str:
        """Return what users read in tables."""


def why_no_algorithm(problem: Problem) -> str | None:
    """Return why no algorithm of fewer products computes a problem; None where one may."""
    if problem.accuracy != "standard":
        return f"accuracy={problem.accuracy} asks for the direct method"
    if problem.element.name not in ELEMENTS:
        return f"dtype={problem.element.name} is not one of {', '.join(ELEMENTS)}"
    if whole(problem)[1].finishes_apart or problem.quantised_weights:
        return "add, gelu, silu and quantised weights take the sums of the direct method"
    return None


def transformed_nest(nest: Nest, algorithm: Algorithm, extents: dict[str, int], c: Operand) -> Nest:
    """Return the nest of independent products of transformed operands, and what makes C of them.

    Args:
        nest: of the direct method, with no step applied.
        algorithm: transforms the operands.
        extents: of the points, the tiles, the columns and the reduction.
        c: the result as it is stored.
    """
    (point, points), (row, rows), (col, cols), (k, depth) = extents.items()
    compute, store = nest.compute, replace(nest.store, transforms=True)
    at_points = Axis(points, (Term(point),))
    of_rows, of_cols, of_k = (
        Axis(size, (Term(dim),)) for dim, size in ((row, rows), (col, cols), (k, depth))
    )
    return replace(
        nest,
        dims=(
            Dim(point, points, Role.POINT, single=True),
            *(Dim(row, rows, Role.ROW), Dim(col, cols, Role.COL), Dim(k, depth, Role.K)),
        ),
        operands=(
            Operand("A", "A", (at_points, of_rows, of_k)),
            Operand("B", "B", (at_points, of_k, of_cols), nest.problem.has_constant_weights),
            c,
            nest.operand("bias"),
        ),
        body=(Loop(point, 1, LoopKind.MICRO, (compute,)), store),
        image="A",
        group=0,
        algorithm=algorithm,
    )


def check_place(step: Step, nest: Nest) -> None:
    """Raise unless a step of a transformed nest comes in the order of the template."""
    if nest.algorithm is None or step.place is not Place.LOOPS:
        return
    order = [
        ("parallel", nest.row), ("parallel", nest.col), ("tile", nest.col), ("pack", "B"),
        ("prefetch", "B"), ("tile", nest.row), ("pack", "A"),
    ]  # fmt: skip
    usual = ", ".join(f"{name} {what}" for name, what in order)
    place = (step.name, getattr(step, "dim", getattr(step, "operand", "")))
    if place not in order:
        why = f"it cannot be combined with {nest.algorithm.name}; the order is {usual}"
        raise step.refused(nest, why)
    before = [_place(here.node) for here in nest.visit()]
    ranks = [order.index(other) for other in before if other in order]
    if place == ("prefetch", "B") and ("pack", "B") not in before:
        raise step.refused(nest, "it comes after the pack of B")
    if ranks and max(ranks) >= order.index(place):
        raise step.refused(nest, f"the order is {usual}")


def _place(node: Node) -> tuple[str, str]:
    if isinstance(node, Loop) and node.kind in (LoopKind.PARALLEL, LoopKind.TILE):
        return (node.kind.value, node.dim)
    if isinstance(node, Stage):
        return ("pack", node.operand)
    return ("prefetch", node.operand) if isinstance(node, Fetch) else ("", "")
