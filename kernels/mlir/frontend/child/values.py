"""Where values come from: constants, splats, single uses, and what they repeat."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from iree.compiler import ir

from tilewise.kernels.mlir.frontend.child.structured import rank, structured
from tilewise.kernels.mlir.frontend.imported import ARGUMENT, SAME_BYTES

MOST_STEPS = 64
RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape")
_CONSTANTS = ("arith.constant", "flow.tensor.constant", "util.unfoldable_constant",
              "ml_program.global_load_const", "torch.vtensor.literal", "tosa.const",
              "stablehlo.constant")  # fmt: skip
_LOADS = ("util.global.load",)
_DEQUANTIZED = "iree_linalg_ext.dequantize_affine"
"""Of a tensor, its scale and its zero point; other lowerings have a linalg op in its place."""
Number = int | float


def owner(value: Any) -> Any | None:
    """The operation that makes a value; None for an argument."""
    found = value.owner
    return (
        None if isinstance(found, ir.Block) else found.operation
    )  # some views have another `name`


def is_argument(value: Any) -> bool:
    """Whether a value is an argument of the program, in whatever shape; its bytes are not ours."""
    for _ in range(MOST_STEPS):
        op = owner(value)
        if op is None or op.name == ARGUMENT:
            return True
        if op.name not in SAME_BYTES:
            return False
        value = op.operands[0]
    return True


def only_user(value: Any) -> Any | None:
    """The one operation that uses a value, once; None if there are none or more uses."""
    uses = list(islice(value.uses, 2))
    return uses[0].owner.operation if len(uses) == 1 else None


def is_copy(op: Any) -> bool:
    """Whether a linalg op yields its only input, element by element."""
    seen = structured(op)
    if seen is None or len(seen.inputs) != 1:
        return False
    block = seen.body
    last = next(iter(block.operations)).operation
    return bool(last.name == "linalg.yield" and last.operands[0] == block.arguments[0])


def splat(value: Any) -> Number | None:
    """The number that all elements of a value are, if that is known."""
    for _ in range(MOST_STEPS):
        op = owner(value)
        if op is None:
            return None
        if op.name == "arith.constant":
            return _number(op.attributes["value"])
        if op.name in ("linalg.fill", "tensor.splat", *SAME_BYTES) or is_copy(op):
            value = op.operands[0]
        else:
            return None
    return None


def _number(attribute: Any) -> Number | None:
    if isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat:
        attribute = attribute.get_splat_value()
    if isinstance(attribute, ir.FloatAttr | ir.IntegerAttr):
        found = attribute.value
        return found if isinstance(found, float) else int(found)
    return None


def is_constant(value: Any) -> bool:
    """Whether a value is known when the module is compiled or loaded: a weight."""
    for _ in range(MOST_STEPS):
        op = owner(value)
        if op is None:
            return False
        if op.name in _CONSTANTS:
            return True
        if op.name in _LOADS:
            return _is_immutable(op)
        if op.name in ("linalg.fill", "tensor.splat", "tensor.pad", *SAME_BYTES) or _is_of_one(op):
            value = op.operands[0]
        else:
            return False
    return False


def _is_of_one(op: Any) -> bool:
    """Whether an op computes from one tensor alone: a transposition, a cast, a scale for all."""
    if op.name == _DEQUANTIZED:
        return all(not rank(one) and is_constant(one) for one in list(op.operands)[1:-1])
    seen = structured(op)
    return seen is not None and len(seen.inputs) == 1 and not list(islice(
        seen.body.arguments[-1].uses, 1))  # fmt: skip


def _is_immutable(load: Any) -> bool:
    name = ir.FlatSymbolRefAttr(load.attributes["global"]).value
    top = load
    while top.parent is not None:
        top = top.parent
    table = ir.SymbolTable(top)
    return name in table and "is_mutable" not in table[name].operation.attributes


Axes = tuple[int, ...]


def origins(value: Any, at: Sequence[Axes]) -> Iterator[tuple[Any, Axes]]:
    """A value and all that it repeats or has in another shape, each with where its elements lie.

    Args:
        value: a tensor.
        at: for each of its axes those of a result along which it lies; none for one of length 1.

    Yields:
        What the value is made of, and the axes of the result along which its elements lie, in
        the order in which they lie in memory.
    """
    for _ in range(MOST_STEPS):
        yield value, tuple(axis for axes in at for axis in axes)
        op = owner(value)
        before = None if op is None else _before(op, at)
        if op is None or before is None:
            return
        value, at = op.operands[0], before


def _before(op: Any, at: Sequence[Axes]) -> list[Axes] | None:
    """Where the axes of an op's operand lie, given those of its result; None if in no order."""
    if op.name == "tensor.cast":
        return list(at)
    if op.name == "tensor.expand_shape":
        return [tuple(axis for i in group for axis in at[i]) for group in reassociation(op)]
    if op.name == "tensor.collapse_shape":
        sizes = tuple(op.operands[0].type.shape)
        found = [Axes()] * len(sizes)
        for i, group in enumerate(reassociation(op)):
            long = [axis for axis in group if sizes[axis] != 1]
            if len(long) > 1:
                return None
            for axis in long:
                found[axis] = at[i]
        return found
    return _before_copy(op, at) if is_copy(op) and rank(op.operands[0]) else None


def _before_copy(op: Any, at: Sequence[Axes]) -> list[Axes] | None:
    """The same of a transposition or a repetition."""
    seen = structured(op)
    assert seen is not None
    read, written = seen.maps
    if read is None or written is None:
        return None
    sizes, found = tuple(op.operands[0].type.shape), list[Axes]()
    for axis, size in zip(read, sizes, strict=True):
        if size == 1:
            found.append(())
        elif axis in written and len(axis) == 1 and read.count(axis) == written.count(axis) == 1:
            found.append(at[written.index(axis)])
        else:
            return None
    return found


def long_axes(value: Any) -> list[Axes]:
    """Each axis of a tensor as its own place, where it is longer than one."""
    return [(i,) if size != 1 else () for i, size in enumerate(value.type.shape)]


def reassociation(op: Any) -> list[list[int]]:
    """Which axes of the longer shape are one axis of the shorter one."""
    return [[int(i) for i in group] for group in op.attributes["reassociation"]]


def integers(attribute: Any) -> list[int]:
    """The numbers of an array attribute."""
    return [int(getattr(one, "value", one)) for one in attribute]
