"""A module as it was read: its problems, its other ops, and the tensors between."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tilewise.kernels.mlir.frontend.nest import ContractionNest
from tilewise.kernels.problem import Accuracy, with_accuracy

ARGUMENT = "hal.tensor.import"
"""The op that stands for a program's argument once IREE has imported a module."""
VIEWS = ("tensor.expand_shape", "tensor.collapse_shape", "tensor.cast", "tensor.reshape",
         "flow.tensor.reshape")  # fmt: skip
"""Ops whose result has the elements of their operand in the same order."""
SAME_BYTES = (*VIEWS, "tensor.bitcast")
"""Ops whose result has the bytes of their operand, so that IREE copies nothing."""


@dataclass(frozen=True)
class Arrangement:
    """How an operand of an op becomes that of a problem: `value.transpose(axes).reshape(shape)`.

    The value excludes transposes and padding that the problem includes. `moves` says whether
    elements change their places in memory.
    """

    axes: tuple[int, ...]
    shape: tuple[int, ...]
    moves: bool


@dataclass(frozen=True)
class Occurrence:
    """One op that is a problem.

    Attributes:
        where: function, location and op.
        a, b, c: how the operands become the problem's.
        is_swapped: whether the op's second input is the problem's A (or image).
        fused: what the problem includes besides the op, in this order: `pad`, `broadcast_a`,
            `broadcast_b` (repeated for each batch), `transpose_a`, `transpose_b`, `transpose_c`,
            `bias`, `addition` of a tensor, `relu` or `relu6`.
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
    def inputs(self) -> tuple[int, int]:
        """The numbers of the op's inputs that are the problem's A and B."""
        return (1, 0) if self.is_swapped else (0, 1)

    @property
    def arrangements(self) -> dict[str, Arrangement]:
        """Those of the operands by their names in the problem."""
        return {"A": self.a, "B": self.b, "C": self.c, "add": self.c}

    @property
    def is_plain(self) -> bool:
        """Whether the problem's operands have the op's order in memory."""
        return not any(one.moves for one in self.arrangements.values())

    def with_accuracy(self, accuracy: Accuracy) -> "Occurrence":
        """Return the op with a problem of another accuracy, which modules do not specify."""
        return replace(self, problem=with_accuracy(self.problem, accuracy))


@dataclass(frozen=True)
class Skipped:
    """An op that multiplies or convolves and is not a problem."""

    op: str
    reason: str
    where: str


@dataclass(frozen=True)
class ModuleProblem:
    """A problem of a module, with its number of ops and their places."""

    problem: str
    count: int
    where: tuple[str, ...]


def grouped(found: Iterable[tuple[str, str]]) -> tuple[ModuleProblem, ...]:
    """Return problems with their places, each once, from a pair of both for each op."""
    places: dict[str, list[str]] = {}
    for problem, where in found:
        places.setdefault(problem, []).append(where)
    return tuple(ModuleProblem(name, len(where), tuple(where)) for name, where in places.items())


@dataclass(frozen=True)
class Imported:
    """The problems of a module and the ops that were skipped, in order."""

    occurrences: tuple[Occurrence, ...]
    skipped: tuple[Skipped, ...]

    @property
    def problems(self) -> tuple[ModuleProblem, ...]:
        """Each problem once, in the order of the first ops."""
        return grouped((found.problem, found.where) for found in self.occurrences)

    def with_accuracy(self, accuracy: Accuracy) -> "Imported":
        """Return the module with all problems at an accuracy."""
        found = tuple(one.with_accuracy(accuracy) for one in self.occurrences)
        return replace(self, occurrences=found)

    def to_json(self) -> dict[str, Any]:
        """Return the object that `tilewise import --json` prints."""
        return {
            "problems": [{**vars(found), "where": list(found.where)} for found in self.problems],
            "skipped": [dict(vars(one)) for one in self.skipped],
        }


def why_none(skipped: Sequence[Skipped]) -> str:
    """Return the end of a message that a module has no problem: why its first op is not one."""
    if not skipped:
        return ""
    place = skipped[0].where.rpartition(" ")[0]
    others = f"; {len(skipped) - 1} others are skipped" if len(skipped) > 1 else ""
    return f": {skipped[0].op} at {place} {skipped[0].reason}{others}"


NodeKind = Literal["contraction", "elementwise", "pool", "other"]
Size = int | None
"""Of an axis; None if dynamic."""


@dataclass(frozen=True)
class TensorUse:
    """A tensor as a node reads or makes it; views may change the `shape`.

    `role` is `A`, `B` or `C` of a contraction, empty for what an elementwise op uses axis by axis,
    and `whole` otherwise.
    """

    tensor: int
    shape: tuple[Size, ...]
    role: str


@dataclass(frozen=True)
class Node:
    """One op with everything that its problem includes.

    Attributes:
        reads: tensors that are not constants, in the op's order; A, B, C or `add` for a
            contraction.
        place: a contraction's number among the module's problems, from 1, as in `read_op`.
        reason: why an op that multiplies, convolves or pools is not a problem; else empty.
    """

    kind: NodeKind
    op: str
    where: str
    reads: tuple[TensorUse, ...]
    makes: tuple[TensorUse, ...]
    found: Occurrence | None = None
    place: int | None = None
    reason: str = ""


@dataclass(frozen=True)
class Tensor:
    """A tensor in memory between nodes; its views are the same tensor.

    `is_given` means the caller makes it, `is_result` that the function returns it.
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
    def layers(self) -> tuple[ModuleProblem, ...]:
        """The distinct problems with their counts, in the order of the first nodes."""
        found = (node.found for node in self.nodes if node.found is not None)
        return grouped((one.problem, one.where) for one in found)

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """The nodes that multiply, convolve or pool and are not problems."""
        return tuple(Skipped(one.op, one.reason, one.where) for one in self.nodes if one.reason)

    @property
    def why_no_layer(self) -> str:
        """The end of a message that the graph has no layers."""
        others = tuple(node for node in self.nodes if node.kind != "pool")
        return why_none(replace(self, nodes=others).skipped)

    def with_accuracy(self, accuracy: Accuracy) -> "Graph":
        """Return the graph with all problems at an accuracy."""
        nodes = tuple(
            node if node.found is None
            else replace(node, found=node.found.with_accuracy(accuracy))
            for node in self.nodes
        )  # fmt: skip
        return replace(self, nodes=nodes)

    def readers_of(self, tensor: int) -> tuple[int, ...]:
        """Return the nodes that read a tensor, each once."""
        return tuple(
            i for i, node in enumerate(self.nodes) if any(u.tensor == tensor for u in node.reads)
        )


@dataclass(frozen=True)
class LoneOp:
    """A user's op alone in a function `@kernel`.

    The function takes the op's inputs in order, then the result's buffer, and returns the result.
    The op keeps its name, maps, body, attributes and types.

    Attributes:
        nest: the op's loops and accesses.
        found: the problem of the op alone.
        within: the problem of the op with its surroundings in the module.
        starts_from_fill: whether sums start from zeros instead of the result's content.
        first_factor: the input that the body multiplies first, 0 or 1.
    """

    payload: str
    nest: ContractionNest
    found: Occurrence
    within: Occurrence
    starts_from_fill: bool
    first_factor: int

    def with_accuracy(self, accuracy: Accuracy) -> "LoneOp":
        """Return the op with both problems at an accuracy."""
        found, within = (one.with_accuracy(accuracy) for one in (self.found, self.within))
        return replace(self, found=found, within=within)
