"""What is done with a contraction's result, in a spelling: additions, and relu."""

from dataclasses import dataclass

from tilewise.kernels.dispatches.patterns.contraction import copied
from tilewise.kernels.dispatches.patterns.graph import Graph, Value, dims, identity_map
from tilewise.kernels.dispatches.patterns.relu import (
    CLAMP,
    CLAMP_SIX,
    MAXIMUM,
    MAXIMUM_INTEGER,
    MINIMUM,
    SELECT,
    SELECT_INTEGER,
    SIX,
    Limit,
)
from tilewise.kernels.dispatches.patterns.spelling import Spelling
from tilewise.kernels.problem import Problem


@dataclass(frozen=True)
class Addition:
    """A tensor that is added to the sums, as a residual is; `is_first` if it is the left side."""

    value: Value
    is_first: bool


def channel(problem: Problem) -> int:
    """The dim of the result along which the bias lies."""
    return 1 if problem.has_channels_first else len(problem.operand_shapes["C"]) - 1


def bias_as_init(graph: Graph, problem: Problem, bias: Value) -> Value:
    """The bias, broadcast: what the sum begins with."""
    shape = problem.operand_shapes["C"]
    out = graph.empty(shape, bias.element)
    added = [axis for axis in range(len(shape)) if axis != channel(problem)]
    rest = f"ins({bias.name} : {bias.type}) outs({out.name} : {out.type}) dimensions = {added}"
    return graph.add("linalg.broadcast", rest, (bias, out), shape, bias.element)


def finished(
    graph: Graph,
    spelling: Spelling,
    problem: Problem,
    sums: Value,
    bias: Value | None,
    addition: Addition | None = None,
) -> Value:
    """The result of the problem.

    Args:
        graph: to which ops are added.
        spelling: how they are said.
        problem: what is computed.
        sums: the contraction's result.
        bias: what is still to be added.
        addition: the tensor that is added after it.
    """
    assert sums.shape is not None
    whole = identity_map(len(sums.shape))
    lines: list[str] = []
    inputs, maps = [sums], [whole]
    if bias is not None:
        lines = [f"%s = arith.add{_kind(problem)} %in0, %in1 : {sums.element}"]
        inputs.append(bias if spelling.bias != "tensor" else _broadcast(graph, problem, bias))
        maps.append(whole if spelling.bias == "tensor" else _along(problem))
    if addition is not None:
        if lines:
            sums = _pass(graph, maps, inputs, [*lines, f"linalg.yield %s : {sums.element}"])
        lines = [f"%s = arith.add{_kind(problem)} %in0, %in1 : {sums.element}"]
        added = addition.value
        inputs, maps = [added, sums] if addition.is_first else [sums, added], [whole, whole]
    if lines and not (spelling.bias == "joined" and problem.has_relu):
        sums = _pass(graph, maps, inputs, [*lines, f"linalg.yield %s : {sums.element}"])
        lines, inputs, maps = [], [sums], [whole]
    if not problem.has_relu:
        return sums
    if problem.ceiling is not None and spelling.relu6 != "body":
        return _relu6_in_passes(graph, spelling, sums)
    for limit in _limits(spelling, problem):
        lines += limit.lines_for(_made_by(lines) or "%in0", sums.element)
    return _pass(graph, maps, inputs, [*lines, f"linalg.yield {_made_by(lines)} : {sums.element}"])


def _made_by(lines: list[str]) -> str:
    """The value of the last line; nothing without lines."""
    return lines[-1].partition(" ")[0] if lines else ""


def _relu6_in_passes(graph: Graph, spelling: Spelling, value: Value) -> Value:
    """One op for each limit."""
    whole = [identity_map(len(value.shape or ()))]
    if spelling.relu6 == "scalars":
        value = _chosen(graph, (value, graph.scalar(0, value.element)), "ogt")
    else:
        lines = (MAXIMUM if spelling.relu == "maximum" else SELECT).lines_for("%in0", value.element)
        value = _pass(graph, whole, [value], [*lines, f"linalg.yield %r : {value.element}"])
    if spelling.relu6 == "passes":
        lines = MINIMUM.lines_for("%in0", value.element)
        return _pass(graph, whole, [value], [*lines, f"linalg.yield %l : {value.element}"])
    six = graph.scalar(SIX, value.element)
    pair = (value, six) if spelling.relu6 == "scalar" else (six, value)
    return _chosen(graph, pair, "olt")


def _chosen(graph: Graph, pair: tuple[Value, Value], compare: str) -> Value:
    """The first of two where they compare so, and the second elsewhere; one is a single number."""
    large = next(one for one in pair if one.shape)
    assert large.shape is not None
    names = dims(len(large.shape))
    maps = [
        identity_map(len(large.shape)) if one.shape else f"({', '.join(names)}) -> ()"
        for one in (*pair, large)
    ]
    lines = [
        f"%q = arith.cmpf {compare}, %in0, %in1 : {large.element}",
        f"%r = arith.select %q, %in0, %in1 : {large.element}",
        f"linalg.yield %r : {large.element}",
    ]
    return graph.generic(maps, pair, graph.empty(large.shape, large.element), lines)


def _pass(graph: Graph, maps: list[str], inputs: list[Value], lines: list[str]) -> Value:
    sums = inputs[0]
    assert sums.shape is not None
    out = graph.empty(sums.shape, sums.element)
    return graph.generic([*maps, maps[0]], inputs, out, lines)


def _broadcast(graph: Graph, problem: Problem, bias: Value) -> Value:
    return copied(graph, bias, f"d{channel(problem)}", problem.operand_shapes["C"])


def _along(problem: Problem) -> str:
    names = dims(len(problem.operand_shapes["C"]))
    return f"({', '.join(names)}) -> ({names[channel(problem)]})"


def _limits(spelling: Spelling, problem: Problem) -> tuple[Limit, ...]:
    """What a body does that has all of an epilogue."""
    is_named = spelling.relu == "maximum"
    if problem.ceiling is not None:
        return (MAXIMUM, MINIMUM) if is_named else (CLAMP, CLAMP_SIX)
    if problem.element.is_float:
        return (MAXIMUM,) if is_named else (SELECT,)
    return (MAXIMUM_INTEGER,) if is_named else (SELECT_INTEGER,)


def _kind(problem: Problem) -> str:
    return "f" if problem.element.is_float else "i"
