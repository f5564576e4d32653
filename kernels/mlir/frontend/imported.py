"""What was found in a module: problems with their places, and what no problem stands for."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

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
        problem: canonical.
        op: its name, such as `linalg.matmul`.
        where: function, location and op.
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
    """An op that multiplies or convolves, and that is no problem.

    Attributes:
        op: its name.
        reason: why, for its author.
        where: function, location and op.
    """

    op: str
    reason: str
    where: str


@dataclass(frozen=True)
class Found:
    """A problem of a module.

    Attributes:
        problem: canonical.
        count: ops that are it.
        where: their places.
    """

    problem: str
    count: int
    where: tuple[str, ...]


@dataclass(frozen=True)
class Imported:
    """What a module holds, in its order.

    Attributes:
        occurrences: the ops that are problems.
        skipped: the ops that could have been.
    """

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
