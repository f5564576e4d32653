"""A module as a graph: contractions with what they take in, other ops, and the tensors between."""

from dataclasses import dataclass, replace
from typing import Literal

from tilewise.kernels.mlir.frontend.imported import Found, Imported, Occurrence, Skipped, why_none
from tilewise.kernels.problem import Accuracy

NodeKind = Literal["contraction", "elementwise", "pool", "other"]
Size = int | None
"""Of an axis; None where it is dynamic."""


@dataclass(frozen=True)
class Use:
    """A tensor as a node has it: an operand that is read, or a result that is made.

    Attributes:
        tensor: its number.
        shape: in which the node has it; views between may give it another than the tensor's.
        role: `A`, `B`, `C` (what the sums start from, or what they make) of a contraction; empty
            for what an elementwise op has axis by axis; `whole` for anything else.
    """

    tensor: int
    shape: tuple[Size, ...]
    role: str


@dataclass(frozen=True)
class Node:
    """One op with what it takes in, or one that is left as it is.

    Attributes:
        kind: what it does.
        op: its name, such as `linalg.conv_2d_nhwc_hwcf`.
        where: function, location and op.
        reads: tensors that are no constants, in the op's order; of a contraction A, B, C.
        makes: its results.
        found: the problem, of a contraction.
        place: of a contraction, its number among the problems of the module, from 1, as
            `read_op` takes it.
        reason: why an op that multiplies, convolves or pools is no problem; else empty.
    """

    kind: NodeKind
    op: str
    where: str
    reads: tuple[Use, ...]
    makes: tuple[Use, ...]
    found: Occurrence | None = None
    place: int | None = None
    reason: str = ""


@dataclass(frozen=True)
class Tensor:
    """What lies in memory between nodes; views of it are the same tensor.

    Attributes:
        shape: as it was made.
        dtype: of its elements, as MLIR writes it.
        is_given: whether the caller has made it.
        is_result: whether somebody besides the nodes has it in the end.
    """

    shape: tuple[Size, ...]
    dtype: str
    is_given: bool
    is_result: bool


@dataclass(frozen=True)
class Graph:
    """All functions of a module.

    Attributes:
        nodes: in an order in which they can be computed.
        tensors: that nodes read or make, by number.
    """

    nodes: tuple[Node, ...]
    tensors: tuple[Tensor, ...]

    @property
    def layers(self) -> tuple[Found, ...]:
        """The distinct problems with their counts, in the order of their first nodes."""
        found = tuple(node.found for node in self.nodes if node.found is not None)
        return Imported(found, ()).problems

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """The nodes that multiply, convolve or pool, and that are no problem."""
        return self._without_problem(*self.nodes)

    @property
    def why_no_layer(self) -> str:
        """Of a graph without layers what is added to a message that says so."""
        return why_none(self._without_problem(*(one for one in self.nodes if one.kind != "pool")))

    @staticmethod
    def _without_problem(*nodes: Node) -> tuple[Skipped, ...]:
        return tuple(Skipped(node.op, node.reason, node.where) for node in nodes if node.reason)

    def with_accuracy(self, accuracy: Accuracy) -> "Graph":
        """The same with all problems of an accuracy."""
        nodes = tuple(
            node if node.found is None
            else replace(node, found=node.found.with_accuracy(accuracy))
            for node in self.nodes
        )  # fmt: skip
        return replace(self, nodes=nodes)

    def maker_of(self, tensor: int) -> int | None:
        """The node that makes a tensor; None where the caller does."""
        return next(
            (i for i, node in enumerate(self.nodes) if any(u.tensor == tensor for u in node.makes)),
            None,
        )

    def readers_of(self, tensor: int) -> tuple[int, ...]:
        """The nodes that read a tensor, each once."""
        return tuple(
            i for i, node in enumerate(self.nodes) if any(u.tensor == tensor for u in node.reads)
        )
