"""Copy one op of a module into a function of its own."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from iree.compiler import ir

from tilewise.kernels.mlir.dialects import children
from tilewise.kernels.mlir.frontend.child.bodies import FUSED, body_of, first_factor
from tilewise.kernels.mlir.frontend.child.candidates import candidates, is_quantised
from tilewise.kernels.mlir.frontend.child.recognise import recognised
from tilewise.kernels.mlir.frontend.child.values import Structured, element, owner, splat
from tilewise.kernels.mlir.frontend.child.writing import function_text, parsed_function
from tilewise.kernels.mlir.frontend.graph import LoneOp, Occurrence
from tilewise.kernels.mlir.frontend.nest import NestRefusedError
from tilewise.kernels.problem import parse_problem

MOST_NAMED = 8  # places that an error lists


def extract(module: Any, place: str) -> LoneOp:
    """Return the op at a place: its number among the problems, from 1, or its printed place.

    An empty place stands for the only problem. Raise RefusedError if no op or several are there,
    or if the op cannot be separated.
    """
    op, within = _at(list(_problems(module)), place)
    if is_quantised(within):
        raise NestRefusedError(
            f"has unsigned bytes or zero points; use the script of {within.problem}"
        )
    if len(op.inputs) != 2:
        raise NestRefusedError(f"reads {len(op.inputs)} tensors; scripts match ops that read two")
    body = body_of(op, knows_tensors=False)
    if body.name == FUSED:
        raise NestRefusedError(f"adds products by {FUSED}, which scripts do not match; "
                           "give arith.mulf and arith.addf")  # fmt: skip
    # No problem with groups starts from a tensor, so a bias is dropped like the surroundings.
    starts_from_fill = splat(op.init) == 0 or parse_problem(within.problem).groups > 1
    payload, copy = _alone(op, starts_from_fill)
    found = recognised(copy, within.where)
    assert found is not None
    return LoneOp(
        function_text(payload),
        op.nest(),
        found[0],
        within,
        starts_from_fill=starts_from_fill,
        first_factor=first_factor(body),
    )


def _problems(module: Any) -> Iterator[tuple[Structured, Occurrence]]:
    """Yield the ops of a module that are problems, in order."""
    for one in candidates(module):
        found = one.found[0] if one.found else one.narrow
        if one.seen is not None and found is not None:
            yield one.seen, found


def _at(found: list[tuple[Structured, Occurrence]], place: str) -> tuple[Structured, Occurrence]:
    if not found:
        raise NestRefusedError("no op of the module is a problem")
    if not place and len(found) == 1:
        return found[0]
    if not place:
        raise NestRefusedError(
            f"{len(found)} ops are problems, at {_places(found)}; give one of them"
        )
    if place.isdecimal():
        if not 1 <= int(place) <= len(found):
            raise NestRefusedError(f"no op has the number {place}; the module has {len(found)}")
        return found[int(place) - 1]
    named = [one for one in found if place in (one[1].where, one[1].where.rpartition(" ")[0])]
    if len(named) == 1:
        return named[0]
    if named:
        numbers = ", ".join(str(i) for i, one in enumerate(found, 1) if one in named)
        raise NestRefusedError(f"{len(named)} ops are at {place}; give a number: {numbers}")
    raise NestRefusedError(f"no problem is at this place; give one of {_places(found)}")


def _places(found: list[tuple[Structured, Occurrence]]) -> str:
    named = [one[1].where.rpartition(" ")[0] for one in found[:MOST_NAMED]]
    if len(found) > MOST_NAMED:
        named.append("...")
    return ", ".join(named)


def _alone(op: Structured, starts_from_fill: bool) -> tuple[Any, Structured]:
    """Return a module with the op as the body of `@kernel`, and the op there."""
    a, b, c = (str(value.type) for value in (*op.inputs, op.init))
    wide, start = element(op.init), ""
    if starts_from_fill:
        zero = "0.0" if wide.startswith(("f", "bf")) else "0"
        start = (
            f"%zero = arith.constant {zero} : {wide}\n"
            f"%init = linalg.fill ins(%zero : {wide}) outs(%C : {c}) -> {c}\n"
        )
    text = (
        f"func.func @kernel(%A: {a} {{bufferization.writable = false}}, "
        f"%B: {b} {{bufferization.writable = false}}, "
        f"%C: {c} {{bufferization.writable = true}}) -> {c} {{\n{start}"
        f"return {'%init' if start else '%C'} : {c}\n}}"
    )
    module, block, end = parsed_function(text, op.op.context)
    copy = op.op.clone(ip=ir.InsertionPoint(end)).operation
    for number, value in enumerate((*list(block.arguments)[:2], end.operands[0])):
        copy.operands[number] = value
    _take_in_constants(copy)
    end.operands[0] = copy.results[0]
    return module, replace(op, op=copy, inputs=tuple(copy.operands)[:-1], init=copy.operands[-1])


def _take_in_constants(copy: Any) -> None:
    """Copy the constants that an op's body reads from outside."""
    for inner in list(children(copy)):
        for number, value in enumerate(inner.operands):
            maker = owner(value)
            if maker is None or maker.parent.operation == copy:
                continue
            if maker.name != "arith.constant":
                raise NestRefusedError(
                    "reads a value from outside of its body, and cannot stand alone"
                )
            inner.operands[number] = maker.clone(ip=ir.InsertionPoint(copy)).results[0]
