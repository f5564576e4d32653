"""The maximum of rows as PyTorch's softmax has it: one of two results, the place of it unread."""

from math import prod
from typing import Any

from tilewise.kernels.mlir.frontend.child.actions import finite
from tilewise.kernels.mlir.frontend.child.bodies import HUGE_FLOAT
from tilewise.kernels.mlir.frontend.child.values import (
    element,
    maps_of,
    owner,
    rank,
    splat,
    static_shape,
)
from tilewise.kernels.mlir.frontend.nest import RefusedError
from tilewise.kernels.mlir.frontend.program import Access, Combine, Loops, ScalarOp

_RESULTS = 2
_COMBINED: dict[str, Combine] = {"arith.maximumf": "max", "arith.maxnumf": "maxnum"}


def maximum_of(op: Any) -> Loops:
    """The loops of an op that finds the maximum of rows, and where it is, which nobody reads.

    Raises:
        RefusedError: it is none.
    """
    if op.name != "linalg.generic" or len(op.results) != _RESULTS:
        raise RefusedError("has not two results")
    maps, block = maps_of(op), op.regions[0].blocks[0]
    if list(op.results[1].uses) or maps is None or len(maps) != 1 + _RESULTS:
        raise RefusedError("has a second result that is read")
    value, (start, out) = op.operands[0], (op.operands[1], op.results[0])
    yielded = block.operations[len(block.operations) - 1].operation.operands[0]
    maker = owner(yielded)
    compared = {block.arguments[0], block.arguments[1]}
    combine = None if maker is None else _COMBINED.get(maker.name)
    if maker is None or combine is None or set(maker.operands) != compared:
        raise RefusedError("is no maximum")
    number = splat(start)
    if number is None or number > -HUGE_FLOAT or element(out) != "f32":
        raise RefusedError("does not start from the least f32")
    shape = static_shape(value)
    places = [((i, 1),) for i in range(rank(value))]
    written = [axes for axes in maps[1] or () if axes]
    if maps[0] is None or list(maps[0]) != places or written != places[:-1]:
        raise RefusedError("reduces another axis than the last one")
    steps = tuple(prod(shape[i + 1 :]) if size > 1 else 0 for i, size in enumerate(shape))
    body = (ScalarOp("read", (), 0.0),)
    accesses = (Access(0, "", "f32", steps),)
    return Loops(shape, 1, combine, accesses, body, "f32", finite(number))
