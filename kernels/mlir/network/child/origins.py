"""Whether values of a module depend on weights alone or on the input; and the remaining packs."""

from collections.abc import Iterable, Iterator
from typing import Any

from iree.compiler import ir

from tilewise.kernels.mlir.frontend.child.operations import operations
from tilewise.kernels.mlir.frontend.child.values import is_constant, owner, rank, splat, structured
from tilewise.kernels.mlir.frontend.graph import VIEWS
from tilewise.kernels.mlir.lowering.structure import walk
from tilewise.kernels.mlir.network.plan import Remaining

PASSING = (*VIEWS, "tensor.pad", "linalg.transpose", "linalg.broadcast",
           "linalg.pack", "linalg.unpack")  # fmt: skip
SECOND = 1


class Origins:
    """Which values of a module are known when the model is loaded.

    Those that depend on constants and weights alone. An argument of a function is a weight if it
    was a constant (`constants` are their numbers), or if each use is the second operand of a
    product without batches, or a broadcast, as of a bias.
    """

    def __init__(self, constants: Iterable[int] = ()) -> None:
        self._constants = frozenset(constants)

    def is_weight(self, value: Any) -> bool:
        """Return whether a value is known when the model is loaded."""
        return is_constant(value, self._is_weight_argument)

    def _is_weight_argument(self, value: Any) -> bool:
        number = None if owner(value) is not None else _number_in_function(value)
        return number is not None and (number in self._constants or _is_used_as_weight(value))


def _number_in_function(value: Any) -> int | None:
    """Return the number of a function's argument; None for an argument of a loop."""
    argument = ir.BlockArgument(value)
    if argument.owner.owner.operation.name != "func.func":
        return None
    return int(argument.arg_number)


def _is_used_as_weight(value: Any) -> bool:
    """Return whether all uses of an argument are those of a weight."""
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
    loops = seen.dims
    if loops is not None and loops[0] & loops[1] - loops[2]:
        slides = any(len(axis) > 1 for axis in seen.maps[0] or ())
        is_batched = not slides and bool(loops[0] & loops[1] & loops[2])
        return bool(number == SECOND) and not is_batched
    return rank(value) < rank(seen.result)


def argument_behind(value: Any) -> int | None:
    """Return the number of the function's argument that a value is, in any order or shape."""
    while (op := owner(value)) is not None:
        if op.name not in PASSING:
            return None
        value = op.operands[0]
    return _number_in_function(value)


NAMES = ("linalg.pack", "linalg.unpack")


def count(module: Any, origins: Origins) -> Iterator[Remaining]:
    """Yield each pack and unpack of a module on tensors."""
    for op, _, _ in operations(module.operation):
        if op.name in NAMES:
            yield Remaining(
                op.name.removeprefix("linalg."),
                f"{op.operands[0].type} to {op.results[0].type}",
                origins.is_weight(op.operands[0]),
                is_reshape(op),
            )


def is_reshape(op: Any) -> bool:
    """Return whether a pack or unpack moves no element: no padding, and blocks in plain order."""
    plain = op.operands[0] if op.name == "linalg.pack" else op.results[0]
    sizes = list(plain.type.shape)
    positions = list(ir.DenseI64ArrayAttr(op.attributes["inner_dims_pos"]))
    tiles = list(ir.DenseI64ArrayAttr(op.attributes["static_inner_tiles"]))
    order = list(range(len(sizes)))
    if "outer_dims_perm" in op.attributes:
        order = list(ir.DenseI64ArrayAttr(op.attributes["outer_dims_perm"])) or order
    block = dict(zip(positions, tiles, strict=True))
    if any(size <= 0 for size in (*sizes, *tiles)):
        return False
    if any(sizes[axis] % tile for axis, tile in block.items()):
        return False
    # Counters locate an element; they have to vary in the order of the plain axes.
    outer = [(axis, 0) for axis in order if sizes[axis] // block.get(axis, 1) > 1]
    inner = [(axis, 1) for axis in positions if block[axis] > 1]
    counters = outer + inner
    return counters == sorted(counters)


_PER_ARGUMENT = "arg_attrs"


def to_arguments(module: Any, function: Any) -> list[int]:
    """Make a function's constant tensors arguments after its own; return their numbers."""
    block = function.regions[0].blocks[0]
    kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    given = list(kind.inputs)
    first = len(given)
    for op in [op for op, _ in walk(module.operation) if _is_constant_weight(op)]:
        argument = block.add_argument(op.results[0].type, op.location)
        op.results[0].replace_all_uses_with(argument)
        op.erase()
        given.append(argument.type)
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(given, kind.results))
    if _PER_ARGUMENT in function.attributes:
        per_argument = list(ir.ArrayAttr(function.attributes[_PER_ARGUMENT]))
        per_argument += [ir.DictAttr.get({})] * (len(given) - first)
        function.attributes[_PER_ARGUMENT] = ir.ArrayAttr.get(per_argument)
    return list(range(first, len(given)))


def _is_constant_weight(op: Any) -> bool:
    """Return whether an op is a constant of different floats, or one without its values."""
    if op.name != "arith.constant" or not isinstance(op.results[0].type, ir.RankedTensorType):
        return False
    kind, has_values = op.results[0].type, isinstance(op.attributes["value"], ir.DenseElementsAttr)
    is_weight = not has_values or isinstance(kind.element_type, ir.FloatType)
    return is_weight and kind.has_static_shape and splat(op.results[0]) is None
