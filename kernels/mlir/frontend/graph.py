"""A module as it was read: its problems, its other ops, and the tensors between."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tilewise.kernels.mlir.frontend.nest import Nest
from tilewise.kernels.problem import Accuracy, with_accuracy

ARGUMENT = "hal.tensor.import"
"""The op that gives an argument of the program, once IREE has taken a module in."""
SAME_BYTES = ("tensor.expand_shape", "tensor.collapse_shape", "tensor.cast", "tensor.reshape",
              "tensor.bitcast", "flow.tensor.reshape")  # fmt: skip
"""Ops whose result has the bytes of what they read, so that IREE copies nothing."""


@dataclass(frozen=True)
class Arrangement:
    """How an operand of an op becomes that of a problem: `value.transpose(axes).reshape(shape)`.

    The value is what the op reads or writes, without transposes that the problem takes in. Where
    the problem takes in padding, the value is meant without it.

    Attributes:
        axes: of the value, in the order that the problem has.
        shape: of the problem's operand.
        moves: whether elements change their places in memory.
    """

    axes: tuple[int, ...]
    shape: tuple[int, ...]
    moves: bool


@dataclass(frozen=True)
class Occurrence:
    """One op that is a problem.

    Attributes:
        where: function, location and op.
        op: its name, such as `linalg.matmul`.
        a, b, c: how the operands become the problem's.
        is_swapped: whether the op's second input is the problem's A (or image).
        fused: what around the op the problem takes in: `pad`, `broadcast_a`, `broadcast_b` (an
            operand that is repeated for each batch), `transpose_a`, `transpose_b`, `transpose_c`,
            `bias`, `addition` of a tensor, `relu` or `relu6`, in this order.
    """

    problem: str
    op: str
    where: str
    a: Arrangement
    b: Arrangement
    c: Arrangement
    is_swapped: bool
    fused: tuple[str, ...]

    @property
    def is_plain(self) -> bool:
        """Whether the problem's operands lie in memory as the op's do."""
        return not (self.a.moves or self.b.moves or self.c.moves)

    def with_accuracy(self, accuracy: Accuracy) -> "Occurrence":
        """The same op, its problem of another accuracy: no module says which is wanted."""
        return replace(self, problem=with_accuracy(self.problem, accuracy))


@dataclass(frozen=True)
class Skipped:
    """An op that multiplies or convolves, and that is no problem."""

    op: str
    reason: str
    where: str


@dataclass(frozen=True)
class Found:
    """A problem of a module."""

    problem: str
    count: int
    where: tuple[str, ...]


@dataclass(frozen=True)
class Imported:
    """What a module holds, in its order."""

    occurrences: tuple[Occurrence, ...]
    skipped: tuple[Skipped, ...]

    @property
    def problems(self) -> tuple[Found, ...]:
        """Each problem once, in the order of their first ops."""
        places: dict[str, list[str]] = {}
        for found in self.occurrences:
            places.setdefault(found.problem, []).append(found.where)
        return tuple(Found(name, len(where), tuple(where)) for name, where in places.items())

    def with_accuracy(self, accuracy: Accuracy) -> "Imported":
        """The same with all problems of an accuracy."""
        found = tuple(one.with_accuracy(accuracy) for one in self.occurrences)
        return replace(self, occurrences=found)

    def with_problems(self, others: Sequence[tuple[str, str]]) -> "Imported":
        """The same with some ops as other problems.

        Args:
            others: of each such op the problem here, and the one that takes its place.
        """
        left = list(others)
        found = []
        for one in self.occurrences:
            pair = next((pair for pair in left if pair[0] == one.problem), None)
            if pair is not None:
                left.remove(pair)
            found.append(one if pair is None else replace(one, problem=pair[1]))
        return replace(self, occurrences=tuple(found))

    def to_json(self) -> dict[str, Any]:
        """The object that `tilewise import --json` prints."""
        return {
            "problems": [
                {"problem": found.problem, "count": found.count, "where": list(found.where)}
                for found in self.problems
            ],
            "skipped": [
                {"op": one.op, "reason": one.reason, "where": one.where} for one in self.skipped
            ],
        }


def why_none(skipped: Sequence[Skipped]) -> str:
    """What is added to a message that a module has no problem: why its first op is none."""
    if not skipped:
        return ""
    place = skipped[0].where.rpartition(" ")[0]
    others = f"; {len(skipped) - 1} others are skipped" if len(skipped) > 1 else ""
    return f": {skipped[0].op} at {place} {skipped[0].reason}{others}"


NodeKind = Literal["contraction", "elementwise", "pool", "other"]
Size = int | None
"""Of an axis; None where it is dynamic."""


@dataclass(frozen=True)
class Use:
    """A tensor as a node has it: an operand that is read, or a result that is made.

    Attributes:
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
        op: its name, such as `linalg.conv_2d_nhwc_hwcf`.
        reads: tensors that are no constants, in the op's order; of a contraction A, B, C.
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
    """All functions of a module."""

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


@dataclass(frozen=True)
class LoneOp:
    """A user's op in a function of its own, `@kernel`, with nothing of what is around it.

    The function takes the op's inputs in their order, then the result's buffer, and returns the
    result. The op is the module's: its name, maps, body, attributes and types.

    Attributes:
        nest: the op's loops and accesses.
        found: the problem that the op is, by itself.
        within: the problem that it is with what the module has around it.
        starts_from_fill: whether the result starts from zeros, and not from what it holds.
        first_factor: the input that its body multiplies first, 0 or 1.
    """

    payload: str
    nest: Nest
    found: Occurrence
    within: Occurrence
    starts_from_fill: bool
    first_factor: int

    def with_accuracy(self, accuracy: Accuracy) -> "LoneOp":
        """The same with both problems of an accuracy."""
        found, within = (one.with_accuracy(accuracy) for one in (self.found, self.within))
        return replace(self, found=found, within=within)
