"""Operations that are added to a module: made at the insertion point, by their names."""

from math import prod
from typing import Any

from iree.compiler import ir

EQUAL, UNEQUAL, LESS, UNSIGNED_LESS = 0, 1, 2, 6
"""Predicates of `arith.cmpi`."""
AT_LEAST_OR_NAN, LESS_OR_NAN = 10, 11
"""Predicates of `arith.cmpf`."""
LOWER_LINALG = "builtin.module(func.func(convert-linalg-to-loops))"
"""The pipeline before operations are added to bodies of linalg ops, which check their own."""


def made(name: str, operands: list[Any], *results: Any, **attributes: Any) -> Any:
    """Return a new operation."""
    return ir.Operation.create(
        name, results=list(results), operands=operands, attributes=attributes or None
    )


def make(name: str, operands: list[Any], result: Any, **attributes: Any) -> Any:
    """Return the result of a new operation."""
    return made(name, operands, result, **attributes).results[0]


def constant(kind: Any, value: float) -> Any:
    """Return a number, in every lane where `kind` is a vector."""
    element = kind.element_type if isinstance(kind, ir.VectorType) else kind
    is_float = isinstance(element, ir.FloatType)
    attribute = (ir.FloatAttr if is_float else ir.IntegerAttr).get(element, value)
    if isinstance(kind, ir.VectorType):
        attribute = ir.DenseElementsAttr.get_splat(kind, attribute)
    return make("arith.constant", [], kind, value=attribute)


def compare(predicate: int, left: Any, right: Any, name: str = "arith.cmpi") -> Any:
    """Return the flags of a comparison of integers, or of floats by `arith.cmpf`."""
    flags = like(left.type, ir.IntegerType.get_signless(1))
    attribute = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), predicate)
    return make(name, [left, right], flags, predicate=attribute)


def any_of(flags: Any) -> Any:
    """Return whether any of a vector's flags is set."""
    if not isinstance(flags.type, ir.VectorType):
        return flags
    flag = flags.type.element_type
    if len(flags.type.shape) != 1:
        line = ir.VectorType.get([prod(flags.type.shape)], flag)
        flags = make("vector.shape_cast", [flags], line)
    return make("vector.reduction", [flags], flag, kind=ir.Attribute.parse("#vector.kind<or>"))


def like(kind: Any, element: Any) -> Any:
    """Return a type of `element` with as many lanes as `kind` has."""
    return ir.VectorType.get(kind.shape, element) if isinstance(kind, ir.VectorType) else element


def add_argument(function: Any, kind: str) -> Any:
    """Give a function a last argument; it is returned."""
    argument = (
        function.regions[0].blocks[0].add_argument(ir.Type.parse(kind), ir.Location.unknown())
    )
    signature = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    function.attributes["function_type"] = ir.TypeAttr.get(
        ir.FunctionType.get([*signature.inputs, argument.type], signature.results)
    )
    if "arg_attrs" in function.attributes:
        del function.attributes["arg_attrs"]
    return argument
