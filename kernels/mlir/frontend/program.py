"""A module as something to run: what each node does, its loops, and the values of its weights.

Elementwise ops and reductions are loops around a list of instructions. Loops may be seen as rows of
as many columns, whatever shapes the tensors have (`Split`). Of a reduction, the columns are what is
reduced.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tilewise.kernels.mlir.frontend.graph import Graph
from tilewise.kernels.problem import Accuracy

Combine = Literal["", "sum", "max", "maxnum", "min", "minnum"]
"""How the last loops reduce; empty where none does. `max` and `min` keep what is not a number."""


@dataclass(frozen=True)
class Access:
    """How an op reads a tensor.

    Attributes:
        read: the place among what the node reads; None for a constant.
        constant: the role under which a program has the constant's values; empty for an activation.
        dtype: of its elements, f32 or bf16.
        steps: elements from one index of each loop to the next, in the tensor as the node has it.
    """

    read: int | None
    constant: str
    dtype: str
    steps: tuple[int, ...]


@dataclass(frozen=True)
class ScalarOp:
    """One value of a body.

    Attributes:
        name: `read`, `number`, or an operation of
            `tilewise.kernels.mlir.frontend.program.OPERATIONS`.
        of: the earlier instructions that it is applied to.
        number: of an access, of the module's constant, or the predicate of a comparison.
    """

    name: str
    of: tuple[int, ...] = ()
    number: float = 0.0


@dataclass(frozen=True)
class Loops:
    """A nest around a body, which writes its result in the order of the loops.

    Attributes:
        reduced: how many of the last loops reduce.
        body: instructions; the last of them is the result, or what is reduced.
        dtype: of the result's elements.
        start: the finite number that a maximum or a minimum starts from: of rows of infinities it
            is the result. None where the start changes nothing.
    """

    extents: tuple[int, ...]
    reduced: int
    combine: Combine
    accesses: tuple[Access, ...]
    body: tuple[ScalarOp, ...]
    dtype: str
    start: float | None = None

    @property
    def is_copy(self) -> bool:
        """Whether it does no more than put elements elsewhere."""
        return len(self.body) == 1 and not self.reduced and self.accesses[0].dtype == self.dtype


OPERATIONS: dict[str, str] = {
    "arith.addf": "add",
    "arith.subf": "subtract",
    "arith.mulf": "multiply",
    "arith.divf": "divide",
    "arith.negf": "negate",
    "arith.maximumf": "max",
    "arith.maxnumf": "maxnum",
    "arith.minimumf": "min",
    "arith.minnumf": "minnum",
    "arith.cmpf": "compare",
    "arith.select": "select",
    "arith.truncf": "narrow",
    "arith.extf": "widen",
    "math.absf": "abs",
    "math.fma": "multiply add",
    "math.sqrt": "sqrt",
    "math.rsqrt": "rsqrt",
    "math.exp": "exp",
    "math.erf": "erf",
    "math.tanh": "tanh",
}
"""What a body may do, by the names of MLIR: of f32; `narrow` rounds to bf16."""


@dataclass(frozen=True)
class Split:
    """How memory is seen: rows of columns."""

    rows: int
    columns: int


@dataclass(frozen=True)
class Lines:
    """How an access sees rows.

    Attributes:
        is_wide: whether it reads an element for each column; else one for each row.
        row: elements from row to row; None where `table` has the beginning of each.
        table: elements before each row.
    """

    is_wide: bool
    row: int | None
    table: NDArray[Any] | None = field(default=None, compare=False)


def splits_of(loops: Loops) -> Iterator[Split]:
    """The ways in which loops may be seen."""
    extents = loops.extents
    if loops.reduced:
        yield Split(prod(extents[: -loops.reduced]), prod(extents[-loops.reduced :]))
        return
    for first in range(len(extents) + 1):
        yield Split(prod(extents[:first]), prod(extents[first:]))


def first_column(loops: Loops, split: Split) -> int | None:
    """The first loop over columns; None where loops do not split so."""
    extents = loops.extents
    if loops.reduced:
        first = len(extents) - loops.reduced
        return first if split == Split(prod(extents[:first]), prod(extents[first:])) else None
    if prod(extents) == split.rows * split.columns:
        firsts = (i for i in range(len(extents) + 1) if prod(extents[:i]) == split.rows)
        return next(firsts, None)
    return len(extents) if prod(extents) == split.rows else None


def makes_columns(loops: Loops, split: Split) -> bool:
    """Whether the result has an element for each column; else it has one for each row."""
    size = split.rows * split.columns
    return not loops.reduced and split.columns > 1 and prod(loops.extents) == size


def whole_lines(split: Split, *, is_wide: bool) -> Lines:
    """How a tensor is read that lies row behind row."""
    row = split.columns if is_wide else 1
    return Lines(is_wide, row if split.rows > 1 else 0)


def lines_of(access: Access, extents: tuple[int, ...], first: int) -> Lines | None:
    """How an access sees rows; None where columns are neither neighbours nor one element."""
    columns = [(n, step) for n, step in zip(extents[first:], access.steps[first:], strict=True)
               if n > 1]  # fmt: skip
    rows = [(n, step) for n, step in zip(extents[:first], access.steps[:first], strict=True)
            if n > 1]  # fmt: skip
    is_wide = bool(columns) and any(step for _, step in columns)
    if is_wide and columns != _neighbours([n for n, _ in columns], 1):
        return None
    step = rows[-1][1] if rows else 0
    if rows == _neighbours([n for n, _ in rows], step):
        return Lines(is_wide, step)
    offsets = np.zeros(1, np.int64)
    for count, by in rows:
        offsets = np.add.outer(offsets, np.arange(count, dtype=np.int64) * by).reshape(-1)
    return Lines(is_wide, None, offsets)


def _neighbours(counts: list[int], step: int) -> list[tuple[int, int]]:
    """Loops and their steps, where elements follow each other by a step."""
    return [(count, step * prod(counts[i + 1 :])) for i, count in enumerate(counts)]


WindowKind = Literal["max", "sum"]

WEIGHT_TYPES: dict[str, type[Any]] = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": np.uint16, "i8": np.int8,
    "i32": np.int32,
}  # fmt: skip
"""NumPy's type of each element; bf16 as its bits."""


@dataclass(frozen=True)
class Pad:
    """A tensor with more elements around it.

    Attributes:
        low, high: how many before and behind it, along each axis.
    """

    low: tuple[int, ...]
    high: tuple[int, ...]
    value: float


@dataclass(frozen=True)
class Window:
    """The maximum or the sum of a window that moves over a tensor.

    Attributes:
        size, strides, dilations: along each axis; 1 where it does not move over more than one.
    """

    kind: WindowKind
    size: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]


@dataclass(frozen=True)
class Sum:
    """Sums over axes of a tensor."""

    axes: tuple[int, ...]


@dataclass(frozen=True)
class Action:
    """What a node that is no contraction does: one of these, or why it is none.

    What is done to each element is `loops`. Sums are that as well, to be fused with neighbours.

    Attributes:
        refused: why nobody here runs it; empty for contractions, and where one of the others is.
    """

    pad: Pad | None = None
    window: Window | None = None
    sum: Sum | None = None
    loops: Loops | None = None
    refused: str = ""


@dataclass(frozen=True)
class Constant:
    """A value that a node reads and that the module holds.

    Attributes:
        role: of a contraction A, B, bias, or C where its sums start from a constant, as the problem
            has it; else as of the node's loops.
        dtype, shape: of the problem's operand, or of what the loops read.
        name: of its pieces.
        pieces: how many there are.
    """

    node: int
    role: str
    dtype: str
    shape: tuple[int, ...]
    name: str
    pieces: int


@dataclass(frozen=True)
class Leaving:
    """A result of the program."""

    tensor: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Outline:
    """A program without the values of its weights.

    Attributes:
        arguments: numbers of the tensors that the caller gives, in order.
    """

    graph: Graph
    actions: tuple[Action, ...]
    constants: tuple[Constant, ...]
    arguments: tuple[int, ...]
    results: tuple[Leaving, ...]

    def with_accuracy(self, accuracy: Accuracy) -> "Outline":
        """The same with all problems of an accuracy."""
        return replace(self, graph=self.graph.with_accuracy(accuracy))


@dataclass(frozen=True)
class Program:
    """A module with one function, to run.

    Attributes:
        weights: constant operands, by node and role, in the shapes of the node's problem; bf16 as
            its bits.
    """

    outline: Outline
    weights: Mapping[tuple[int, str], NDArray[Any]] = field(repr=False)
