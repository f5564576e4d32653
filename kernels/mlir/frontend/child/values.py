"""Where values come from: constants, splats, single uses, and the axes along which they vary."""

from itertools import islice
from typing import Any

from iree.compiler import ir

from kernels.mlir.frontend.child.structured import rank, structured
from kernels.mlir.frontend.imported import ARGUMENT, SAME_BYTES

MOST_STEPS = 64
RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape")
_CONSTANTS = ("arith.constant", "flow.tensor.constant", "util.unfoldable_constant",
              "ml_program.global_load_const", "torch.vtensor.literal", "tosa.const",
              "stablehlo.constant")  # fmt: skip
_LOADS = ("util.global.load",)
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
    """Whether a linalg op computes from one input alone: a transposition, a cast."""
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


def varies_along(value: Any) -> frozenset[int]:
    """The axes along which the elements of a tensor may differ."""
    return _varies(value, MOST_STEPS)


def _varies(value: Any, steps: int) -> frozenset[int]:
    shape = tuple(value.type.shape) if rank(value) else ()
    long = frozenset(i for i, size in enumerate(shape) if size != 1)
    op = owner(value)
    if op is None or not steps:
        return long
    if splat(value) is not None:
        return frozenset()
    if op.name in RESHAPES:
        inner = _varies(op.operands[0], steps - 1)
        groups = reassociation(op)
        if op.name == "tensor.expand_shape":
            found = {axis for i, group in enumerate(groups) if i in inner for axis in group}
        else:
            found = {i for i, group in enumerate(groups) if inner & set(group)}
        return long & found
    if is_copy(op):
        seen = structured(op)
        assert seen is not None
        read, written = seen.maps
        if read is None or written is None or not rank(op.operands[0]):
            return frozenset() if not rank(op.operands[0]) else long
        inner = _varies(op.operands[0], steps - 1)
        dims = {dim for i in inner for dim, _ in read[i]}
        return long & {i for i, axis in enumerate(written) if any(dim in dims for dim, _ in axis)}
    return long


def reassociation(op: Any) -> list[list[int]]:
    """Which axes of the longer shape are one axis of the shorter one."""
    return [[int(i) for i in group] for group in op.attributes["reassociation"]]


def integers(attribute: Any) -> list[int]:
    """The numbers of an array attribute."""
    return [int(getattr(one, "value", one)) for one in attribute]
