"""The ops of a module that may be packed, and what is left as it is."""

from collections import Counter
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tilewise.kernels.mlir.frontend.child.bodies import body_of, is_multiply_add
from tilewise.kernels.mlir.frontend.child.operations import operations, where
from tilewise.kernels.mlir.frontend.child.values import Structured, extents, structured
from tilewise.kernels.mlir.frontend.nest import Nest, Operand, RefusedError, is_contraction
from tilewise.kernels.mlir.network.child.origins import Origins, argument_behind
from tilewise.kernels.mlir.network.packing import OpShape
from tilewise.kernels.mlir.network.plan import Left

KNOWN = ("arith.", "builtin.", "func.", "linalg.", "math.", "tensor.", "ml_program.", "util.")
"""Dialects whose other ops packs may pass, or that compute no tensors."""
UNKNOWN = "is nothing that packs know: what it reads and makes stays plain"
INPUTS = 2


@dataclass
class Seen:
    """What a module holds.

    Attributes:
        ops: that may be packed.
        counts: of ops of each name.
        left: ops that cannot be packed, and why.
        depths: for each argument that is a weight how many products are summed with it.
    """

    ops: list[OpShape] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    left: list[Left] = field(default_factory=list)
    depths: dict[int, int] = field(default_factory=dict)


def read(module: Any, origins: Origins) -> Seen:
    """The ops of a module.

    Args:
        module: on linalg.
        origins: of its values.
    """
    seen = Seen()
    for op, function, number in operations(module.operation):
        name, place = op.name, where(op, function, number)
        seen.counts[name] += 1
        if not name.startswith(KNOWN):
            seen.left.append(Left(name, place, UNKNOWN))
            continue
        if name.startswith("linalg.") and structured(op) is None:
            seen.left.append(Left(name, place, UNKNOWN))
            continue
        try:
            shape = _shape(op, seen.counts[name] - 1, place, origins)
        except RefusedError as refusal:
            seen.left.append(Left(name, place, str(refusal)))
            continue
        if shape is not None:
            seen.ops.append(shape)
            if (argument := argument_behind(op.operands[1])) is not None:
                seen.depths[argument] = _depth(shape)
    return seen


def _depth(op: OpShape) -> int:
    """How many products make one element of the result."""
    return prod(op.extents[dim] for dim in op.inputs[1].dims - op.result.dims)


def _shape(op: Any, number: int, place: str, origins: Origins) -> OpShape | None:
    """An op that multiplies or pools; None for one that packs pass, or do not.

    Raises:
        RefusedError: it does, and cannot be packed.
    """
    seen = structured(op)
    if seen is None or len(seen.inputs) < INPUTS:
        return None
    is_pool = pools(seen)
    if not is_pool and not _multiplies(seen):
        return None
    if len(seen.inputs) > INPUTS:
        raise RefusedError("has inputs besides the two that are multiplied")
    operands = seen.operand(0), seen.operand(1), seen.operand(INPUTS)
    if not is_pool and not _slides(operands[0]) and _slides(operands[1]):
        raise RefusedError("reads its image as the second input")
    return OpShape(
        op.name,
        number,
        place,
        extents(operands),
        operands[:2],
        operands[2],
        not is_pool and origins.is_weight(seen.inputs[1]),
        is_pool,
    )


def _slides(operand: Operand) -> bool:
    return any(len(axis) > 1 or (axis and axis[0][1] != 1) for axis in operand.axes)


def pools(op: Structured) -> bool:
    """Whether an op looks at windows of its first input alone; the second has their size."""
    first = op.maps[0]
    if len(op.inputs) != INPUTS or first is None:
        return False
    is_read = next(iter(op.body.arguments[1].uses), None) is not None
    return not is_read and any(len(axis) > 1 for axis in first)


def _multiplies(op: Structured) -> bool:
    """Whether an op sums products of two inputs, in whatever types.

    Raises:
        RefusedError: its shapes are not static.
    """
    first, second, result = op.maps[0], op.maps[1], op.maps[-1]
    if first is None or second is None or result is None:
        return False
    of_first, of_second, of_result = (
        {dim for axis in axes for dim, _ in axis} for axes in (first, second, result)
    )
    if not of_first & of_second - of_result:
        return False
    if len(op.inputs) == INPUTS and not is_multiply_add(body_of(op, knows_tensors=False), INPUTS):
        return False
    operands = op.operand(0), op.operand(1), op.operand(len(op.inputs))
    nest = Nest(extents(operands), *operands)
    return nest.has_windows or is_contraction(nest)
