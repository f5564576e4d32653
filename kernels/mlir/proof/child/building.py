"""Operations that are added to a module: made at the insertion point, by their names."""

from typing import Any

from iree.compiler import ir

EQUAL, UNEQUAL, LESS, UNSIGNED_LESS = 0, 1, 2, 6
"""Predicates of `arith.cmpi`."""


def made(name: str, operands: list[Any], *results: Any, **attributes: Any) -> Any:
    """Return a new operation."""
    return ir.Operation.create(
        name, results=list(results), operands=operands, attributes=attributes or None
    )


def make(name: str, operands: list[Any], result: Any, **attributes: Any) -> Any:
    """Return the result of a new operation."""
    return made(name, operands, result, **attributes).results[0]


def constant(kind: Any, value: int) -> Any:
    """Return an integer, in every lane where `kind` is a vector."""
    element = kind.element_type if isinstance(kind, ir.VectorType) else kind
    attribute = ir.IntegerAttr.get(element, value)
    if isinstance(kind, ir.VectorType):
        attribute = ir.DenseElementsAttr.get_splat(kind, attribute)
    return make("arith.constant", [], kind, value=attribute)


def compare(predicate: int, left: Any, right: Any) -> Any:
    """Return the flags of a comparison of integers."""
    flags = like(left.type, ir.IntegerType.get_signless(1))
    attribute = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), predicate)
    return make("arith.cmpi", [left, right], flags, predicate=attribute)


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
