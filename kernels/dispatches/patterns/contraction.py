"""The contraction of a problem in a spelling, and its epilogue: additions, bias, relu."""

from dataclasses import dataclass
from functools import singledispatch

from tilewise.kernels.dispatches.patterns.graph import DispatchGraph, Value, identity_map, map_of
from tilewise.kernels.dispatches.patterns.spelling import (
    CLAMP,
    CLAMP_SIX,
    MAXIMUM,
    MAXIMUM_INTEGER,
    MINIMUM,
    SELECT,
    SELECT_INTEGER,
    SIX,
    Limit,
    Spelling,
)
from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.mlir.payload.contraction import dense
from tilewise.kernels.mlir.payload.function import smooth_lines
from tilewise.kernels.oracle.operands import operand_type
from tilewise.kernels.problem import Conv2d, Matmul, Problem

TO_NHWC, TO_HWCF, TO_NCHW = "d0, d3, d1, d2", "d3, d2, d0, d1", "d0, d2, d3, d1"


@singledispatch
def contraction(problem: Problem, graph: DispatchGraph, spelling: Spelling, init: Value) -> Value:
    """Return the op that adds products of `%A` and `%B` to `init`; one function per operation."""
    raise UnsupportedError(f"op={problem.op} has no dispatch; give a matmul or a conv2d")


def operand(problem: Problem, name: str) -> Value:
    """Return A, B, C or bias of the problem as an operand of the graph."""
    return Value(f"%{name}", problem.operand_shapes[name], operand_type(problem, name))


def turns_layout(spelling: Spelling, problem: Problem) -> bool:
    """Return whether images are transposed to nhwc and the result back."""
    return spelling.transposes == "generic" and problem.has_channels_first


@contraction.register
def _product(problem: Matmul, graph: DispatchGraph, spelling: Spelling, init: Value) -> Value:
    a, b = operand(problem, "A"), operand(problem, "B")
    stored = problem.transpose_a, problem.transpose_b
    if spelling.transposes != "maps":
        a, b = (
            _transposed(graph, spelling, value) if is_transposed else value
            for value, is_transposed in zip((a, b), stored, strict=True)
        )
        stored = False, False
    lead = "z, " if problem.batch > 1 else ""
    places = "k, m" if stored[0] else "m, k", "n, k" if stored[1] else "k, n", "m, n"
    maps = ", ".join(f"affine_map<({lead}m, n, k) -> ({lead}{at})>" for at in places)
    op = "linalg.batch_matmul" if problem.batch > 1 else "linalg.matmul"
    return _apply(graph, op, f"indexing_maps = [{maps}]" if any(stored) else "", a, b, init)


def _apply(
    graph: DispatchGraph, op: str, attributes: str, a: Value, b: Value, init: Value
) -> Value:
    rest = (
        f"{attributes} ins({a.name}, {b.name} : {a.type}, {b.type}) "
        f"outs({init.name} : {init.type}) -> {init.type}"
    )
    return graph.add(op, rest.lstrip(), (a, b, init), init.shape, init.element)


def _transposed(graph: DispatchGraph, spelling: Spelling, value: Value) -> Value:
    """Exchange the last two dims by ops of their own."""
    order = [*range(len(value.shape) - 2), len(value.shape) - 1, len(value.shape) - 2]
    shape = tuple(value.shape[at] for at in order)
    if spelling.transposes == "generic":
        return copied(graph, value, ", ".join(f"d{at}" for at in order), shape)
    empty = graph.empty(shape, value.element)
    rest = (
        f"ins({value.name} : {value.type}) outs({empty.name} : {empty.type}) permutation = {order}"
    )
    return graph.add("linalg.transpose", rest, (value, empty), shape, value.element)


def copied(graph: DispatchGraph, value: Value, reads: str, shape: tuple[int, ...]) -> Value:
    """Return a transposed or broadcast copy: `reads` says where each element comes from."""
    maps = map_of(len(shape), reads), identity_map(len(shape))
    out = graph.empty(shape, value.element)
    return graph.generic(maps, (value,), out, (f"linalg.yield %in0 : {value.element}",))


@contraction.register
def _convolution(problem: Conv2d, graph: DispatchGraph, spelling: Spelling, init: Value) -> Value:
    image, filters = operand(problem, "A"), operand(problem, "B")
    transposes = turns_layout(spelling, problem)
    nhwc = transposes or not problem.has_channels_first
    if transposes:
        n, c, h, w = problem.operand_shapes["A"]
        f, fc, kh, kw = problem.operand_shapes["B"]
        image = copied(graph, image, TO_NHWC, (n, h, w, c))
        filters = copied(graph, filters, TO_HWCF, (kh, kw, fc, f))
    image = _padded(graph, problem, image, (1, 2) if nhwc else (2, 3))
    if problem.groups > 1 and not problem.groups == problem.ci == problem.co:
        return _grouped(graph, problem, (image, filters, init), nhwc=nhwc)
    kind = spelling.attributes
    attributes = (
        f"{{dilations = dense<{dense(problem.dilations)}> : {kind}<2xi64>, "
        f"strides = dense<{dense(problem.strides)}> : {kind}<2xi64>}}"
    )
    op = "linalg.conv_2d_nhwc_hwcf" if nhwc else "linalg.conv_2d_nchw_fchw"
    if problem.groups > 1:
        op = "linalg.depthwise_conv_2d_nhwc_hwc" if nhwc else "linalg.depthwise_conv_2d_nchw_chw"
        taps, channels = (problem.kh, problem.kw), (problem.co,)
        filters = (
            graph.reshaped(filters, "[[0], [1], [2, 3]]", (*taps, *channels))
            if nhwc
            else graph.reshaped(filters, "[[0, 1], [2], [3]]", (*channels, *taps))
        )
    return _apply(graph, op, attributes, image, filters, init)


def _padded(graph: DispatchGraph, problem: Conv2d, image: Value, spatial: tuple[int, int]) -> Value:
    """Pad with zeros: `tensor.pad` as the library rewrites it before matching."""
    if not problem.is_padded:
        return image
    axes = range(len(image.shape))
    by, behind = (
        [side[spatial.index(axis)] if axis in spatial else 0 for axis in axes]
        for side in (problem.pads.low, problem.pads.high)
    )
    grown = tuple(map(sum, zip(image.shape, by, behind, strict=True)))
    zeros = graph.zeros(grown, image.element)
    rest = (
        f"{image.name} into {zeros.name}{by} {list(image.shape)} {[1] * len(by)} : "
        f"{image.type} into {zeros.type}"
    )
    return graph.add("tensor.insert_slice", rest, (image, zeros), grown, image.element)


def _grouped(
    graph: DispatchGraph, problem: Conv2d, operands: tuple[Value, Value, Value], *, nhwc: bool
) -> Value:
    """Return a generic op with groups as a dimension; no named op has these layouts."""
    n, c, f = problem.n, problem.ci // problem.groups, problem.co // problem.groups
    g, (h, w), kh, kw = problem.groups, problem.padded, problem.kh, problem.kw
    row, column = (
        f"d{1 + at} * {problem.strides[at]} + d{5 + at} * {problem.dilations[at]}" for at in (0, 1)
    )
    if not nhwc:
        shapes = (n, g, c, h, w), (g, f, c, kh, kw), (n, g, f, problem.oh, problem.ow)
        places = f"d0, d3, d7, {row}, {column}", "d3, d4, d7, d5, d6", "d0, d3, d4, d1, d2"
        split = "[[0], [1, 2], [3], [4]]"
        splits = split, "[[0, 1], [2], [3], [4]]", split
    else:
        shapes = (n, h, w, g, c), (kh, kw, c, g, f), (n, problem.oh, problem.ow, g, f)
        places = f"d0, {row}, {column}, d3, d7", "d5, d6, d7, d3, d4", "d0, d1, d2, d3, d4"
        splits = ("[[0], [1], [2], [3, 4]]",) * 3
    a, b, sums = (
        graph.reshaped(value, split, shape)
        for value, split, shape in zip(operands, splits, shapes, strict=True)
    )
    maps = [map_of(8, place) for place in places]
    grouped = graph.generic(maps, (a, b), sums, multiply_add(problem), reductions=3)
    whole = operands[2].shape
    assert whole is not None
    return graph.reshaped(grouped, splits[2], whole)


def multiply_add(problem: Problem) -> list[str]:
    """Return the body `%out + %in0 * %in1` in the accumulator's type."""
    element = problem.element
    narrow, wide, kind = element.name, element.accumulator, "f" if element.is_float else "i"
    names, lines = ("%in0", "%in1"), []
    if narrow != wide:
        extend = "arith.extf" if element.is_float else "arith.extsi"
        lines = [f"%w{i} = {extend} {name} : {narrow} to {wide}" for i, name in enumerate(names)]
        names = "%w0", "%w1"
    return [
        *lines,
        f"%m = arith.mul{kind} {', '.join(names)} : {wide}",
        f"%t = arith.add{kind} %out, %m : {wide}",
        f"linalg.yield %t : {wide}",
    ]


@dataclass(frozen=True)
class Addition:
    """A tensor that is added to the sums, such as a residual; `is_first` if on the left."""

    value: Value
    is_first: bool


def channel(problem: Problem) -> int:
    """Return the dim of the result along which the bias varies."""
    return 1 if problem.has_channels_first else len(problem.operand_shapes["C"]) - 1


def bias_as_init(graph: DispatchGraph, problem: Problem, bias: Value) -> Value:
    """Return the broadcast bias, from which the sums start."""
    shape = problem.operand_shapes["C"]
    out = graph.empty(shape, bias.element)
    added = [axis for axis in range(len(shape)) if axis != channel(problem)]
    rest = f"ins({bias.name} : {bias.type}) outs({out.name} : {out.type}) dimensions = {added}"
    return graph.add("linalg.broadcast", rest, (bias, out), shape, bias.element)


def finished(
    graph: DispatchGraph,
    spelling: Spelling,
    problem: Problem,
    sums: Value,
    bias: Value | None,
    addition: Addition | None = None,
) -> Value:
    """Return the result of the problem: the sums with bias, addition and epilogue, rounded."""
    value = _ended(graph, spelling, problem, sums, bias, addition)
    if problem.out in ("", value.element):
        return value
    lines = [_rounded("%in0", problem), f"linalg.yield %n : {problem.out}"]
    return _pass(graph, [identity_map(len(value.shape))], [value], lines, problem.out)


def _rounded(value: str, problem: Problem) -> str:
    return f"%n = arith.truncf {value} : {problem.element.accumulator} to {problem.out}"


def _ended(
    graph: DispatchGraph,
    spelling: Spelling,
    problem: Problem,
    sums: Value,
    bias: Value | None,
    addition: Addition | None,
) -> Value:
    whole = identity_map(len(sums.shape))
    lines: list[str] = []
    inputs, maps = [sums], [whole]
    if bias is not None:
        lines = [f"%s = arith.add{_kind(problem)} %in0, %in1 : {sums.element}"]
        along, shape = f"d{channel(problem)}", sums.shape
        is_whole = spelling.bias == "tensor"
        inputs.append(copied(graph, bias, along, shape) if is_whole else bias)
        maps.append(whole if is_whole else map_of(len(shape), along))
    is_joined, ends = spelling.bias == "joined", problem.epilogue != "none"
    rounds = is_joined and bool(problem.out) and not spelling.rounds_apart
    if addition is not None and problem.add and is_joined and not addition.is_first:
        lines += _added(problem, _made_by(lines) or "%in0", f"%in{len(inputs)}")
        inputs.append(addition.value)
        maps.append(whole)
    elif addition is not None:
        if lines:
            sums = _pass(graph, maps, inputs, [*lines, f"linalg.yield %s : {sums.element}"])
        left, right = ("%in1", "%in0") if addition.is_first else ("%in0", "%in1")
        lines = _added(problem, left, right, is_first=addition.is_first)
        added = addition.value
        inputs, maps = [added, sums] if addition.is_first else [sums, added], [whole, whole]
    if lines and not (is_joined and (ends or rounds)):
        ending = f"linalg.yield {_made_by(lines)} : {sums.element}"
        sums = _pass(graph, maps, inputs, [*lines, ending], sums.element)
        lines, inputs, maps = [], [sums], [whole]
    if not ends and not rounds:
        return sums
    if problem.ceiling is not None and spelling.relu6 != "body":
        return _relu6_in_passes(graph, spelling, sums)
    if problem.function.is_smooth:
        constants, smooth = smooth_lines(problem.epilogue, _made_by(lines) or "%in0")
        lines += [*constants, *smooth]
    for limit in _limits(spelling, problem) if problem.has_relu else ():
        lines += limit.lines_for(_made_by(lines) or "%in0", sums.element)
    if rounds:
        lines.append(_rounded(_made_by(lines) or "%in0", problem))
    element = problem.out if rounds else sums.element
    lines.append(f"linalg.yield {_made_by(lines)} : {element}")
    return _pass(graph, maps, inputs, lines, element)


def _added(problem: Problem, sums: str, other: str, *, is_first: bool = False) -> list[str]:
    """Return lines that add a value of the result's type to sums, on either side."""
    lines, element = list[str](), problem.element.accumulator
    if problem.out:
        lines, other = [f"%w = arith.extf {other} : {problem.out} to {element}"], "%w"
    pair = f"{other}, {sums}" if is_first else f"{sums}, {other}"
    return [*lines, f"%a = arith.add{_kind(problem)} {pair} : {element}"]


def _made_by(lines: list[str]) -> str:
    """Return the value of the last line; empty without lines."""
    return lines[-1].partition(" ")[0] if lines else ""


def _relu6_in_passes(graph: DispatchGraph, spelling: Spelling, value: Value) -> Value:
    """Apply relu6 by one op for each limit."""
    whole = [identity_map(len(value.shape))]
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


def _chosen(graph: DispatchGraph, pair: tuple[Value, Value], compare: str) -> Value:
    """Select the first of two values where they compare so; one of them is a scalar."""
    large = next(one for one in pair if one.shape)
    count = len(large.shape)
    maps = [identity_map(count) if one.shape else map_of(count, "") for one in (*pair, large)]
    lines = [
        f"%q = arith.cmpf {compare}, %in0, %in1 : {large.element}",
        f"%r = arith.select %q, %in0, %in1 : {large.element}",
        f"linalg.yield %r : {large.element}",
    ]
    return graph.generic(maps, pair, graph.empty(large.shape, large.element), lines)


def _pass(
    graph: DispatchGraph, maps: list[str], inputs: list[Value], lines: list[str], element: str = ""
) -> Value:
    out = graph.empty(inputs[0].shape, element or inputs[0].element)
    return graph.generic([*maps, maps[0]], inputs, out, lines)


def _limits(spelling: Spelling, problem: Problem) -> tuple[Limit, ...]:
    """Return the limits that a body with the whole epilogue applies."""
    is_named = spelling.relu == "maximum"
    if problem.ceiling is not None:
        return (MAXIMUM, MINIMUM) if is_named else (CLAMP, CLAMP_SIX)
    if problem.element.is_float:
        return (MAXIMUM,) if is_named else (SELECT,)
    return (MAXIMUM_INTEGER,) if is_named else (SELECT_INTEGER,)


def _kind(problem: Problem) -> str:
    return "f" if problem.element.is_float else "i"
