"""A module as something to run: its graph, what each node does, and the values of its weights."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tilewise.kernels.mlir.frontend.graph import Graph
from tilewise.kernels.mlir.frontend.loops import Loops
from tilewise.kernels.problem import Accuracy

WindowKind = Literal["max", "sum"]
Elementwise = Literal["add", "clamp", "multiply", "divide", "narrow", "widen"]

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
        value: theirs.
    """

    low: tuple[int, ...]
    high: tuple[int, ...]
    value: float


@dataclass(frozen=True)
class Window:
    """The maximum or the sum of a window that moves over a tensor.

    Attributes:
        kind: which of them.
        size, strides, dilations: along each axis; 1 where it does not move over more than one.
    """

    kind: WindowKind
    size: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]


@dataclass(frozen=True)
class Sum:
    """Sums over axes of a tensor.

    Attributes:
        axes: that are no more there.
    """

    axes: tuple[int, ...]


@dataclass(frozen=True)
class Elements:
    """What is done to each element.

    Attributes:
        kind: `add` of two tensors; `clamp` does no more than relu and ceiling do; `narrow` is f32
            to bf16.
        number: that is multiplied with, or divided by.
        has_relu, has_ceiling: whether the result is cut off below 0, and above 6.
    """

    kind: Elementwise
    number: float = 1.0
    has_relu: bool = False
    has_ceiling: bool = False


@dataclass(frozen=True)
class Action:
    """What a node that is no contraction does: one of these, or why it is none.

    Sums and what is done to each element are `loops`, too: so are they fused with their neighbours.

    Attributes:
        refused: why nobody here runs it; empty for contractions, and where one of the others is.
    """

    pad: Pad | None = None
    window: Window | None = None
    sum: Sum | None = None
    elements: Elements | None = None
    loops: Loops | None = None
    refused: str = ""


@dataclass(frozen=True)
class Constant:
    """A value that a node reads and that the module holds.

    Attributes:
        node: its number.
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
    """A result of the program.

    Attributes:
        tensor: its number.
        shape: in which the caller has it.
    """

    tensor: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Outline:
    """A program without the values of its weights.

    Attributes:
        graph: of the module.
        actions: of each node.
        constants: of all nodes.
        arguments: numbers of the tensors that the caller gives, in order.
        results: in order.
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
        outline: what it does.
        weights: constant operands, by node and role, in the shapes of the node's problem; bf16 as
            its bits.
    """

    outline: Outline
    weights: Mapping[tuple[int, str], NDArray[Any]] = field(repr=False)
