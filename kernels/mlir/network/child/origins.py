"""Where values of a module come from: its weights, or the input of a run."""

from collections.abc import Iterable, Iterator
from typing import Any

from iree.compiler import ir

from tilewise.kernels.mlir.frontend.child.values import (
    RESHAPES,
    Structured,
    owner,
    rank,
    structured,
)

PASSING = (*RESHAPES, "tensor.cast", "tensor.pad", "linalg.transpose", "linalg.broadcast",
           "linalg.pack", "linalg.unpack")  # fmt: skip
SECOND = 1


class Origins:
    """What the values of a module depend on.

    A value that depends on constants and weights alone is known when the model is loaded. An
    argument of a function is a weight if it was a constant, or if each of its uses is the second
    operand of an op that multiplies, and not in batches, or a line that is repeated, as a bias is.

    Args:
        constants: numbers of arguments that were constants.
    """

    def __init__(self, constants: Iterable[int] = ()) -> None:
        self._constants = frozenset(constants)
        self._known: dict[Any, bool] = {}

    def is_weight(self, value: Any) -> bool:
        """Whether a value is known when the model is loaded."""
        waiting = [value]
        while waiting:
            one = waiting[-1]
            if one in self._known:
                waiting.pop()
                continue
            op = owner(one)
            if op is None:
                self._known[one] = self._is_weight_argument(one)
            elif unknown := [v for v in read_by(op) if v not in self._known]:
                waiting += unknown
            else:
                self._known[one] = not len(op.regions) or op.name.startswith(("linalg.", "tensor."))
                self._known[one] &= all(self._known[v] for v in read_by(op))
        return self._known[value]

    def _is_weight_argument(self, value: Any) -> bool:
        number = _number_in_function(value)
        if number is None:
            return False
        return number in self._constants or _is_used_as_weight(value)


def _number_in_function(value: Any) -> int | None:
    """The number of an argument of a function; None for one of a loop."""
    argument = ir.BlockArgument(value)
    if argument.owner.owner.operation.name != "func.func":
        return None
    return int(argument.arg_number)


def _is_used_as_weight(value: Any) -> bool:
    """Whether all uses of an argument are those of a weight."""
    uses = list(value.uses)
    return bool(uses) and all(_is_weights_use(use, value) for use in uses)


def _is_weights_use(use: Any, value: Any) -> bool:
    op, number = use.owner.operation, use.operand_number
    if op.name in PASSING and number == 0:
        if op.name == "linalg.broadcast":
            return True
        return _is_used_as_weight(op.results[0])
    seen = structured(op)
    if seen is None:
        return False
    loops = _loops(seen)
    if loops is not None and loops[0] & loops[1] - loops[2]:
        slides = any(len(axis) > 1 for axis in seen.maps[0] or ())
        is_batched = not slides and bool(loops[0] & loops[1] & loops[2])
        return bool(number == SECOND) and not is_batched
    return rank(value) < rank(seen.result)


def _loops(op: Structured) -> tuple[set[int], set[int], set[int]] | None:
    """The loops of the first two inputs and of the result; None where there are not two."""
    first, second, result = op.maps[0], op.maps[SECOND], op.maps[-1]
    if len(op.inputs) <= SECOND or first is None or second is None or result is None:
        return None
    a, b, c = ({dim for axis in axes for dim, _ in axis} for axes in (first, second, result))
    return a, b, c


def argument_behind(value: Any) -> int | None:
    """The number of the function's argument that a value is, in whatever order or shape."""
    while (op := owner(value)) is not None:
        if op.name not in PASSING:
            return None
        value = op.operands[0]
    return _number_in_function(value)


def read_by(op: Any) -> Iterator[Any]:
    """The values from outside that an op or its body reads."""
    yield from op.operands
    for region in op.regions:
        for block in region.blocks:
            inside = {*block.arguments}
            for inner in block.operations:
                yield from (value for value in inner.operands if value not in inside)
                inside.update(inner.results)
