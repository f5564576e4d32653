"""The packable ops of a module, and the layers of a packed one."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tilewise.kernels.mlir.frontend.child.bodies import body_of, is_multiply_add
from tilewise.kernels.mlir.frontend.child.operations import operations, where
from tilewise.kernels.mlir.frontend.child.values import (
    Structured,
    element,
    extents,
    is_copy,
    only_user,
    owner,
    splat,
    structured,
)
from tilewise.kernels.mlir.frontend.child.writing import (
    copied,
    function_text,
    parsed_function,
)
from tilewise.kernels.mlir.frontend.nest import NestRefusedError, is_contraction
from tilewise.kernels.mlir.network.child.origins import Origins, argument_behind, read_by
from tilewise.kernels.mlir.network.packing import OpShape
from tilewise.kernels.mlir.network.plan import Layer, LayerShape, Left

KNOWN = ("arith.", "builtin.", "func.", "linalg.", "math.", "tensor.", "ml_program.", "util.")
"""Dialects whose other ops packs may pass, or that compute no tensors."""
UNKNOWN = "is nothing that packs know: what it reads and makes stays plain"
INPUTS = 2


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
        if not name.startswith(KNOWN):
            seen.left.append(Left(name, place, UNKNOWN))
            continue
        if name.startswith("linalg.") and structured(op) is None:
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
                seen.depths[argument] = _depth(shape)
    return seen


def _depth(op: OpShape) -> int:
    """Return how many products make one element of the result."""
    return prod(op.extents[dim] for dim in op.inputs[1].dims - op.result.dims)


def _shape(op: Any, number: int, place: str, origins: Origins) -> OpShape | None:
    """Return an op that multiplies or pools; None for one that packs can pass, or not."""
    seen = structured(op)
    if seen is None or len(seen.inputs) < INPUTS:
        return None
    is_pool = pools(seen)
    if not is_pool and not _multiplies(seen):
        return None
    if len(seen.inputs) > INPUTS:
        raise NestRefusedError("has inputs besides the two that are multiplied")
    operands = seen.operand(0), seen.operand(1), seen.operand(INPUTS)
    if not is_pool and not operands[0].has_windows and operands[1].has_windows:
        raise NestRefusedError("reads its image as the second input")
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


def pools(op: Structured) -> bool:
    """Return whether an op reads windows of its first input; the second only gives their size."""
    first = op.maps[0]
    if len(op.inputs) != INPUTS or first is None:
        return False
    is_read = next(iter(op.body.arguments[1].uses), None) is not None
    return not is_read and any(len(axis) > 1 for axis in first)


def _multiplies(op: Structured) -> bool:
    """Return whether an op sums products of two inputs, in any types."""
    if op.dims is None or not op.dims[0] & op.dims[1] - op.dims[2]:
        return False
    if len(op.inputs) == INPUTS and not is_multiply_add(body_of(op, knows_tensors=False), INPUTS):
        return False
    nest = op.nest()
    return nest.has_windows or is_contraction(nest)


TYPES = {("f32", "f32", "f32"), ("bf16", "bf16", "f32")}
"""Operand types for which there is a compute script."""


def layers(module: Any, places: Mapping[str, str]) -> list[Layer]:
    """Return the distinct layers of a packed module, by their text, in the order of first places.

    A layer is an op that multiplies with the following ops that alone use its result. `places` maps
    the places of packed ops in `module` to those in the original.
    """
    found: dict[str, Layer] = {}
    for op, function, number in operations(module.operation):
        place = places.get(at(where(op, function, number)))
        shape = None if place is None else _layer_shape(op)
        if place is None or shape is None:
            continue
        start, chain = list(_start(op)), list(_chain(op))
        text = _outlined([*start, op, *chain])
        before = found[text].where if text in found else ()
        found[text] = Layer(text, shape, bool(start), len(chain), (*before, place))
    return list(found.values())


def at(place: str) -> str:
    """Return a place without the op's name, which packing changes."""
    return place.rpartition(" ")[0]


def _layer_shape(op: Any) -> LayerShape | None:
    """Return the loops of an op over blocks that multiplies and adds, or pools; None for others."""
    if op.name != "linalg.generic":
        return None
    seen = structured(op)
    if seen is None or len(seen.inputs) != INPUTS:
        return None
    try:
        operands = seen.operand(0), seen.operand(1), seen.operand(INPUTS)
        sizes = extents(operands)
    except NestRefusedError:
        return None
    kinds = tuple(element(value) for value in op.operands)
    if kinds not in TYPES:
        return None
    if not pools(seen) and not is_multiply_add(body_of(seen, knows_tensors=False), INPUTS):
        return None
    return LayerShape.of(sizes, operands, widens=kinds[0] != kinds[-1])


def _start(op: Any) -> Iterator[Any]:
    """Yield what the sums start from if it is a number or a broadcast line."""
    init = owner(op.operands[INPUTS])
    if init is not None and (splat(init.results[0]) is not None or is_copy(init)):
        yield init


def _chain(op: Any) -> Iterator[Any]:
    """Yield the ops on a result alone, one after the other."""
    while (user := only_user(op.results[0])) is not None:
        seen = structured(user)
        if seen is None or user.name != "linalg.generic" or not _continues(seen, op.results[0]):
            return
        yield user
        op = user


def _continues(op: Structured, value: Any) -> bool:
    kinds = str(op.op.attributes["iterator_types"])
    if "reduction" in kinds or op.result.type != value.type:
        return False
    return all(op.is_identity(i) for i, one in enumerate(op.inputs) if one == value)


def _outlined(ops: list[Any]) -> str:
    """Return a function of some ops, whose arguments are the other values that they read."""
    made = {result for op in ops for result in op.results}
    outside = dict.fromkeys(
        value for op in ops for value in read_by(op) if value not in made and not _is_copied(value)
    )
    kinds = [str(value.type) for value in outside]
    result = ops[-1].results[0].type
    arguments = ", ".join(
        f"%a{i}: {kind} {{bufferization.writable = false}}" for i, kind in enumerate(kinds)
    )
    text = f"func.func @layer({arguments}) -> {result} {{\n%e = tensor.empty() : {result}\n" \
           f"return %e : {result}\n}}"  # fmt: skip
    module, block, end = parsed_function(text, ops[0].context)
    known = dict(zip(outside, block.arguments, strict=True))
    for op in ops:
        for value in read_by(op):
            if value not in known and _is_copied(value):
                copied(owner(value), known, end)
        copied(op, known, end)
    end.operands[0] = known[ops[-1].results[0]]
    block.operations[0].operation.erase()
    return function_text(module)


def _is_copied(value: Any) -> bool:
    """Return whether a function makes a value itself: a number, or an uninitialised tensor."""
    op = owner(value)
    return op is not None and (
        op.name == "tensor.empty"
        or (op.name == "arith.constant" and splat(op.results[0]) is not None)
    )
