"""The nodes of a module in order, each with the tensors that it reads and makes."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tilewise.kernels.mlir.frontend.child.dataflow.kinds import kind_of, reads_in_place
from tilewise.kernels.mlir.frontend.child.dataflow.surroundings import Surroundings, surroundings
from tilewise.kernels.mlir.frontend.child.dataflow.tensors import VIEWS, Tensors, shape_of
from tilewise.kernels.mlir.frontend.child.operations import FUNCTIONS, operations, where, why_left
from tilewise.kernels.mlir.frontend.child.recognise import recognised
from tilewise.kernels.mlir.frontend.child.structured import rank, structured
from tilewise.kernels.mlir.frontend.graph import Graph, Node
from tilewise.kernels.mlir.frontend.imported import ARGUMENT
from tilewise.kernels.mlir.frontend.nest import RefusedError

_COMPUTED_AHEAD = ("linalg.", "tensor.", "arith.", "math.")
"""Dialects whose ops, on constants alone, a compiler computes when it loads the module."""
_LEAVES = ("func.return", "util.return")
_SKIPPED = (*FUNCTIONS, *VIEWS, ARGUMENT)


@dataclass(frozen=True)
class Traced:
    """A graph with what it was read from.

    Attributes:
        graph: of the module.
        tensors: the numbers of its values.
        sources: of each node the op that it is, or a contraction's surroundings.
        left: the values that functions return, in their order.
        functions: whose ops the nodes are.
    """

    graph: Graph
    tensors: Tensors
    sources: tuple[Any, ...]
    left: tuple[Any, ...]
    functions: tuple[Any, ...]


@dataclass
class _Found:
    """The contractions by their results, what is inside of them, and why other ops are none.

    Contractions come in the order of the module. Reasons are by function and number there.
    """

    by_result: dict[Any, Surroundings] = field(default_factory=dict)
    inside: set[Any] = field(default_factory=set)
    reasons: dict[tuple[str, int], str] = field(default_factory=dict)


def graph_of(module: Any) -> Graph:
    """The graph of a module on linalg, all functions in one."""
    return traced(module).graph


def traced(module: Any) -> Traced:
    """The graph of a module with the ops that its nodes are.

    A contraction comes where the last op stands that it takes in: all that it reads is made then.
    """
    found, tensors = _contractions(module), Tensors()
    places = {result: i for i, result in enumerate(found.by_result, 1)}
    nodes, sources, left, functions = list[Node](), list[Any](), list[Any](), list[Any]()
    for op, function, number in operations(module.operation):
        if op.name in FUNCTIONS:
            functions.append(op)
        if op.name in _SKIPPED or _is_inside(op, found):
            continue
        if op.name in _LEAVES:
            left += op.operands
            for value in op.operands:
                tensors.leave(value)
            continue
        around = found.by_result.get(op.results[0]) if len(op.results) else None
        reason = found.reasons.get((function, number), "")
        if around is not None:
            nodes.append(_contraction(around, tensors, places[around.result]))
        elif reason or not _is_ahead(op, tensors):
            nodes.append(_other(op, where(op, function, number), tensors, reason))
        sources += [around or op] * (len(nodes) - len(sources))
    for function in functions:
        _keep_arguments(function, tensors)
    graph = Graph(tuple(nodes), tensors.all())
    return Traced(graph, tensors, tuple(sources), tuple(left), tuple(functions))


def _keep_arguments(function: Any, tensors: Tensors) -> None:
    """Make tensors of the arguments that nobody reads: the caller gives them all the same."""
    for block in list(function.regions[0].blocks)[:1] if len(function.regions) else ():
        for argument in block.arguments:
            if rank(argument):
                tensors.read(argument, "")


def _contractions(module: Any) -> _Found:
    """Every op that is a problem, with what is around it."""
    found = _Found()
    for op, function, number in operations(module.operation):
        try:
            seen = structured(op)
            both = None if seen is None else recognised(seen, where(op, function, number))
        except RefusedError as refusal:
            found.reasons[function, number] = str(refusal)
            continue
        if seen is None and (reason := why_left(op)):
            found.reasons[function, number] = reason
        if seen is not None and both is not None:
            around = surroundings(seen, *both)
            found.by_result[around.result] = around
            found.inside |= around.inside
    return found


def _is_inside(op: Any, found: _Found) -> bool:
    return len(op.results) == 1 and op.results[0] in found.inside


def _contraction(around: Surroundings, tensors: Tensors, place: int) -> Node:
    found = around.found
    reads = tuple(
        tensors.read(value, role) for role, value in around.reads if tensors.is_activation(value)
    )
    made = tensors.make(around.result, around.shape, "C")
    return Node("contraction", found.op, found.where, reads, (made,), found, place)


def _other(op: Any, place: str, tensors: Tensors, reason: str) -> Node:
    kind = kind_of(op)
    reads = []
    for number, value in enumerate(op.operands):
        if tensors.is_activation(value):
            is_in_place = kind == "elementwise" and reads_in_place(op, number)
            reads.append(tensors.read(value, "" if is_in_place else "whole"))
    role = "" if kind == "elementwise" else "whole"
    makes = tuple(tensors.make(one, shape_of(one), role) for one in _made(op))
    return Node(kind, op.name, place, tuple(reads), makes, reason=reason)


def _made(op: Any) -> Iterator[Any]:
    return (value for value in op.results if rank(value))


def _is_ahead(op: Any, tensors: Tensors) -> bool:
    """Whether an op is computed when the module is loaded, or has nothing to do with tensors."""
    made = list(_made(op))
    if not made:
        return not any(tensors.is_activation(value) for value in op.operands)
    if all(tensors.is_known(value) for value in made):
        return True
    is_pure = op.name.startswith(_COMPUTED_AHEAD) and len(op.operands)
    if not is_pure or not all(tensors.is_known(value) for value in op.operands):
        return False
    for value in made:
        tensors.take_as_known(value)
    return True
