"""Weights of a module as arguments: it is then proven for all of them, and their values are not
needed to see what becomes of their packs.
"""

from typing import Any

from iree.compiler import ir

from tilewise.kernels.mlir.frontend.child.operations import operations
from tilewise.kernels.mlir.frontend.child.values import splat

_PER_ARGUMENT = "arg_attrs"


def to_arguments(module: Any, function: Any) -> list[int]:
    """Make arguments of a function's constant tensors, behind those that it has.

    Args:
        module: around it.
        function: a `func.func`; it is changed.

    Returns:
        The numbers of the new arguments.
    """
    block = function.regions[0].blocks[0]
    kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    given = list(kind.inputs)
    first = len(given)
    for op in [op for op, _, _ in operations(module.operation) if _is_weight(op)]:
        argument = block.add_argument(op.results[0].type, op.location)
        op.results[0].replace_all_uses_with(argument)
        op.erase()
        given.append(argument.type)
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(given, kind.results))
    if _PER_ARGUMENT in function.attributes:
        told = list(ir.ArrayAttr(function.attributes[_PER_ARGUMENT]))
        told += [ir.DictAttr.get({})] * (len(given) - first)
        function.attributes[_PER_ARGUMENT] = ir.ArrayAttr.get(told)
    return list(range(first, len(given)))


def _is_weight(op: Any) -> bool:
    """Whether an op is a constant of several elements that are not all the same number."""
    if op.name != "arith.constant" or not isinstance(op.results[0].type, ir.RankedTensorType):
        return False
    kind = op.results[0].type
    is_float = isinstance(kind.element_type, ir.FloatType)
    return is_float and kind.has_static_shape and splat(op.results[0]) is None
