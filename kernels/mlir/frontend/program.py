"""A module as something to run: what each node does, its loops, and the values of its weights.

Elementwise ops and reductions are loops around a list of instructions, seen as rows of columns
(`MemoryView2d`) whatever the tensors' shapes; a reduction reduces the columns.
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
"""How the last loops reduce; empty for none. `max` and `min` propagate NaNs."""


@dataclass(frozen=True)
class Access:
    """How an op reads a tensor.

    Attributes:
        read: index among the node's reads; None for a constant.
        constant: the role of the constant in the program; empty for an activation.
        steps: elements from one index of each loop to the next, in the node's view.
    """

    read: int | None
    constant: str
    dtype: str
    steps: tuple[int, ...]


@dataclass(frozen=True)
class ScalarOp:
    """One instruction of a body: `read`, `number`, or a value of `OPERATIONS`.

    `of` are earlier instructions; `number` is an access, a constant, or a comparison's predicate.
    """

    name: str
    of: tuple[int, ...] = ()
    number: float = 0.0


@dataclass(frozen=True)
class Loops:
    """A nest around a body, which writes its result in the order of the loops.

    Attributes:
        reduced: how many of the last loops reduce.
        body: the last instruction is the result, or the value to reduce.
        start: the finite start of a maximum or minimum, which is the result for rows of infinities;
            None if the start changes nothing.
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
        """Whether it only moves elements."""
        reads = [one.dtype for one in self.accesses[:1]]
        return len(self.body) == 1 and not self.reduced and reads == [self.dtype]


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
"""The operations of a body on f32 by MLIR's names; `narrow` rounds to bf16."""


@dataclass(frozen=True)
class MemoryView2d:
    """A view of memory as rows of columns."""

    rows: int
    columns: int


@dataclass(frozen=True)
class Lines:
    """How an access reads rows: an element per column if `is_wide`, else one per row.

    `row` is the distance of rows in elements; None if `table` holds the offset of each.
    """

    is_wide: bool
    row: int | None
    table: NDArray[Any] | None = field(default=None, compare=False)


def _firsts(loops: Loops) -> range:
    """Return the loops that may be the first one over columns."""
    count = len(loops.extents)
    return range(count - loops.reduced if loops.reduced else 0, count - loops.reduced + 1)


def _split_at(loops: Loops, first: int) -> MemoryView2d:
    return MemoryView2d(prod(loops.extents[:first]), prod(loops.extents[first:]))


def splits_of(loops: Loops) -> Iterator[MemoryView2d]:
    """Yield the ways in which loops may be split."""
    return (_split_at(loops, first) for first in _firsts(loops))


def first_column(loops: Loops, split: MemoryView2d) -> int | None:
    """Return the first loop over columns, all loops if these are rows alone; None for neither."""
    has_rows_alone = not loops.reduced and prod(loops.extents) == split.rows
    rows_alone = len(loops.extents) if has_rows_alone else None
    return next((at for at in _firsts(loops) if _split_at(loops, at) == split), rows_alone)


def makes_columns(loops: Loops, split: MemoryView2d) -> bool:
    """Return whether the result has an element per column, not one per row."""
    size = split.rows * split.columns
    return not loops.reduced and split.columns > 1 and prod(loops.extents) == size


def whole_lines(split: MemoryView2d, *, is_wide: bool) -> Lines:
    """Return how a contiguous tensor is read."""
    row = split.columns if is_wide else 1
    return Lines(is_wide, row if split.rows > 1 else 0)


def lines_of(access: Access, extents: tuple[int, ...], first: int) -> Lines | None:
    """Return how an access reads rows; None if columns are neither contiguous nor one element."""
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
    """Return loops with the steps of elements that follow each other."""
    return [(count, step * prod(counts[i + 1 :])) for i, count in enumerate(counts)]


WindowKind = Literal["max", "sum"]

WEIGHT_TYPES: dict[str, type[Any]] = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": np.uint16, "i8": np.int8,
    "i32": np.int32,
}  # fmt: skip
"""NumPy's type of each element; bf16 as its bits."""


@dataclass(frozen=True)
class Pad:
    """A tensor with elements added before (`low`) and after (`high`) each axis."""

    low: tuple[int, ...]
    high: tuple[int, ...]
    value: float


@dataclass(frozen=True)
class PoolWindow:
    """The maximum or the sum of a window that moves over a tensor, with 1 for fixed axes."""

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
    """What a node other than a contraction does: one of these, or why it is refused.

    Sums are also `loops`, to be fused with neighbours. `refused` is empty for contractions.
    """

    pad: Pad | None = None
    window: PoolWindow | None = None
    sum: Sum | None = None
    loops: Loops | None = None
    refused: str = ""


@dataclass(frozen=True)
class Constant:
    """A constant that a node reads, in files `name`.0, `name`.1, ...

    `role` is A, B, C, add or bias of a contraction, in the problem's shape, or one of the loops.
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
    """A program without the values of its weights; `arguments` are numbers of tensors.

    `refused` says why a module cannot be run here: it has a graph alone.
    """

    graph: Graph
    actions: tuple[Action, ...] = ()
    constants: tuple[Constant, ...] = ()
    arguments: tuple[int, ...] = ()
    results: tuple[Leaving, ...] = ()
    refused: str = ""

    def with_accuracy(self, accuracy: Accuracy) -> "Outline":
        """Return the outline with all problems at an accuracy."""
        return replace(self, graph=self.graph.with_accuracy(accuracy))


@dataclass(frozen=True)
class ModuleProgram:
    """A module with one function, to run.

    `weights` are constant operands by node and role, in the problem's shape; bf16 as its bits.
    """

    outline: Outline
    weights: Mapping[tuple[int, str], NDArray[Any]] = field(repr=False)
