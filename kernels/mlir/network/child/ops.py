"""The packable ops of a module."""

from collections import Counter
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tilewise.kernels.mlir.frontend.child.bodies import INPUTS, body_of, is_multiply_add
from tilewise.kernels.mlir.frontend.child.operations import operations, where
from tilewise.kernels.mlir.frontend.child.values import Structured, extents, is_pool, structured
from tilewise.kernels.mlir.frontend.nest import NestRefusedError
from tilewise.kernels.mlir.network.child.origins import Origins, argument_behind
from tilewise.kernels.mlir.network.packing import OpShape
from tilewise.kernels.mlir.network.plan import Left

KNOWN = ("arith.", "builtin.", "func.", "linalg.", "math.", "tensor.", "ml_program.", "util.")
"""Dialects whose other ops packs may pass, or that compute no tensors."""
UNKNOWN = "is nothing that packs know: what it reads and makes stays plain"


@dataclass
class Seen:
    """The ops of a module.

    Attributes:
        ops: packable ones.
        counts: of ops of each name.
        left: ops that cannot be packed, and why.
        depths: products per sum for each argument that is a weight.
    """

    ops: list[OpShape] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    left: list[Left] = field(default_factory=list)
    depths: dict[int, int] = field(default_factory=dict)


def read(module: Any, origins: Origins) -> Seen:
    """Return the ops of a module."""
    seen = Seen()
    for op, function, number in operations(module.operation):
        name, place = op.name, where(op, function, number)
        seen.counts[name] += 1
        has_no_form = name.startswith("linalg.") and structured(op) is None
        if has_no_form or not name.startswith(KNOWN):
            seen.left.append(Left(name, place, UNKNOWN))
            continue
        try:
            shape = _shape(op, seen.counts[name] - 1, place, origins)
        except NestRefusedError as refusal:
            seen.left.append(Left(name, place, str(refusal)))
            continue
        if shape is not None:
            seen.ops.append(shape)
            if (argument := argument_behind(op.operands[1])) is not None:
                of_a_sum = shape.inputs[1].dims - shape.result.dims
                seen.depths[argument] = prod(shape.extents[dim] for dim in of_a_sum)
    return seen


def _shape(op: Any, number: int, place: str, origins: Origins) -> OpShape | None:
    """Return an op that multiplies or pools; None for one that packs can pass, or not."""
    seen = structured(op)
    if seen is None or len(seen.inputs) < INPUTS:
        return None
    pools = is_pool(seen)
    if not pools and not _multiplies(seen):
        return None
    if len(seen.inputs) > INPUTS:
        raise NestRefusedError("has inputs besides the two that are multiplied")
    operands = seen.operand(0), seen.operand(1), seen.operand(INPUTS)
    if not pools and not operands[0].has_windows and operands[1].has_windows:
        raise NestRefusedError("reads its image as the second input")
    return OpShape(
        op.name,
        number,
        place,
        extents(operands),
        operands[:2],
        operands[2],
        not pools and origins.is_weight(seen.inputs[1]),
        pools,
    )


def _multiplies(op: Structured) -> bool:
    """Return whether an op sums products of two inputs, in any types."""
    if op.dims is None or not op.dims[0] & op.dims[1] - op.dims[2]:
        return False
    return len(op.inputs) > INPUTS or is_multiply_add(body_of(op, knows_tensors=False), INPUTS)
