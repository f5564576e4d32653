"""A problem as the module that a user of IREE would compile: named ops on tensors.

The last argument receives the result (`iree.abi.output`), so that calls do not allocate. Constant
weights are a parameter of the module, which IREE packs once, when the module is loaded.
"""

from functools import singledispatch

from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.mlir.payload.contraction import dense
from tilewise.kernels.mlir.payload.factors import argument_of, factor_type, widened_factors
from tilewise.kernels.mlir.payload.function import (
    ENTRY,
    finished,
    has_epilogue,
    multiply_add,
    operand_type,
    writes_apart,
)
from tilewise.kernels.mlir.payload.tensors import (
    TensorOperand,
    affine_map,
    generic,
    mlir_type,
    tensor,
    zero_of,
)
from tilewise.kernels.problem import DTYPES, Conv2d, Matmul, Problem

SCOPE = "model"


def argument_names(problem: Problem) -> list[str]:
    """Return the operands that the function reads, in order; the result's follows them."""
    names = ["A"] if problem.has_constant_weights else ["A", "B"]
    names += problem.extras
    return [*names, "C"] if problem.accumulates else names


def module_text(problem: Problem) -> str:
    """Return the text of the module; raise UnsupportedError for what it cannot compute."""
    if problem.quantised_weights:
        raise UnsupportedError(
            "modules for IREE have no quantised weights; tune for cpu:host", "group"
        )
    result = operand_type(problem, "C")
    arguments = [
        f"{argument_of(problem, name)}: {operand_type(problem, name)}"
        for name in argument_names(problem)
    ]
    arguments.append(f"%out: {result} {{iree.abi.output = 0 : index}}")
    lines = [
        *widened_factors(problem),
        *_initial(problem),
        *_contraction(problem),
        *_finish(problem),
    ]
    parameter = ""
    if problem.has_constant_weights:
        kind = operand_type(problem, "B")
        parameter = (
            f'util.global private @weights = #flow.parameter.named<"{SCOPE}"::"B"> : {kind}\n'
        )
        lines.insert(0, f"{argument_of(problem, 'B')} = util.global.load @weights : {kind}")
    body = "\n".join(f"  {line}" for line in lines)
    return f"{parameter}func.func @{ENTRY}({', '.join(arguments)}) -> {result} {{\n{body}\n}}\n"


def _initial(problem: Problem) -> list[str]:
    """Return the zeros, and %init, which the contraction adds to."""
    element, result = problem.element.accumulator, _sums_type(problem)
    zeros = [
        f"%zero = arith.constant {zero_of(DTYPES[element])}",
        f"%pad = arith.constant {zero_of(factor_type(problem))}",
    ]
    if _start(problem) == "%C":
        return zeros
    return [
        *zeros,
        f"%empty = tensor.empty() : {result}",
        f"%init = linalg.fill ins(%zero : {element}) outs(%empty : {result}) -> {result}",
    ]


def _sums_type(problem: Problem) -> str:
    """Return the type of the result before it is rounded."""
    return tensor(problem.operand_shapes["C"], problem.element.accumulator)


def _factor_type(problem: Problem, name: str) -> str:
    """Return the type of %A or %B, as they are multiplied."""
    return tensor(problem.operand_shapes[name], factor_type(problem).name)


def _adds_last(problem: Problem) -> bool:
    """Return whether what C holds is added to whole sums, not what the sums start from."""
    return problem.accumulates and writes_apart(problem)


def _start(problem: Problem) -> str:
    return "%C" if problem.accumulates and not _adds_last(problem) else "%init"


@singledispatch
def _contraction(problem: Problem) -> list[str]:
    """Return the lines that make %product; one function for each operation."""
    raise UnsupportedError(f"op={problem.op} has no module of IREE's; give a matmul or a conv2d")


def _apply(
    problem: Problem, op: str, attributes: str, a: tuple[str, str], b: tuple[str, str]
) -> str:
    """Return a named op on two operands, each with its type."""
    result = _sums_type(problem)
    return (
        f"%product = {op} {attributes} ins({a[0]}, {b[0]} : {a[1]}, {b[1]}) "
        f"outs({_start(problem)} : {result}) -> {result}"
    )


@_contraction.register
def _product(problem: Matmul) -> list[str]:
    """Return a named op, whose indexing maps say what is transposed."""
    lead = ("z",) if problem.batch > 1 else ()
    a = "k, m" if problem.transpose_a else "m, k"
    b = "n, k" if problem.transpose_b else "k, n"
    dims = (*lead, "m", "n", "k")
    maps = ", ".join(affine_map(dims, ", ".join((*lead, at))) for at in (a, b, "m, n"))
    op = "linalg.batch_matmul" if problem.batch > 1 else "linalg.matmul"
    attributes = f"indexing_maps = [{maps}]" if problem.transpose_a or problem.transpose_b else ""
    operands = ((f"%{name}", _factor_type(problem, name)) for name in "AB")
    return [_apply(problem, op, attributes, *operands)]


@_contraction.register
def _convolution(problem: Conv2d) -> list[str]:
    nhwc = not problem.has_channels_first
    attributes = (
        f"{{dilations = dense<{dense(problem.dilations)}> : tensor<2xi64>, "
        f"strides = dense<{dense(problem.strides)}> : tensor<2xi64>}}"
    )
    lines, image, image_type = _padded(problem)
    filters, filters_type = "%B", _factor_type(problem, "B")
    if problem.groups == 1:
        op = "linalg.conv_2d_nhwc_hwcf" if nhwc else "linalg.conv_2d_nchw_fchw"
    elif problem.groups == problem.ci == problem.co:
        op = "linalg.depthwise_conv_2d_nhwc_hwc" if nhwc else "linalg.depthwise_conv_2d_nchw_chw"
        flat, how = (
            ((problem.kh, problem.kw, problem.co), "[[0], [1], [2, 3]]")
            if nhwc
            else ((problem.co, problem.kh, problem.kw), "[[0, 1], [2], [3]]")
        )
        narrow = tensor(flat, factor_type(problem).name)
        lines.append(f"%flat = tensor.collapse_shape %B {how} : {filters_type} into {narrow}")
        filters, filters_type = "%flat", narrow
    else:
        return [*lines, *_grouped(problem, image)]
    return [*lines, _apply(problem, op, attributes, (image, image_type), (filters, filters_type))]


def _grouped(problem: Conv2d, image: str) -> list[str]:
    """Return an op with groups as a dimension, since no named op has these layouts."""
    n, c, f = problem.n, problem.ci // problem.groups, problem.co // problem.groups
    g, (h, w) = problem.groups, problem.padded
    kh, kw, oh, ow = problem.kh, problem.kw, problem.oh, problem.ow
    row = f"y * {problem.strides[0]} + i * {problem.dilations[0]}"
    col = f"x * {problem.strides[1]} + j * {problem.dilations[1]}"
    if problem.has_channels_first:
        shapes = (n, g, c, h, w), (g, f, c, kh, kw), (n, g, f, oh, ow)
        maps = f"n, g, c, {row}, {col}", "g, f, c, i, j", "n, g, f, y, x"
        channel = "[[0], [1, 2], [3], [4]]"
        splits = channel, "[[0, 1], [2], [3], [4]]", channel
    else:
        shapes = (n, h, w, g, c), (kh, kw, c, g, f), (n, oh, ow, g, f)
        maps = f"n, {row}, {col}, g, c", "i, j, c, g, f", "n, y, x, g, f"
        splits = ("[[0], [1], [2], [3, 4]]",) * 3
    element, result = factor_type(problem), _sums_type(problem)
    stored = (
        (image, tensor(problem.padded_shape, element.name)),
        ("%B", _factor_type(problem, "B")),
        (_start(problem), result),
    )
    types = (element.name, element.name, element.accumulator)
    a, b, sums = (
        TensorOperand(f"%g{name}", shape, kind, indices, f"%{name}")
        for name, shape, kind, indices in zip("abc", shapes, types, maps, strict=True)
    )
    return [
        *(
            f"{one.value} = tensor.expand_shape {value} {split} output_shape {list(one.shape)} : "
            f"{kind} into {one.kind}"
            for one, split, (value, kind) in zip((a, b, sums), splits, stored, strict=True)
        ),
        *generic("%grouped", "nyxgfijc", [a, b], sums, multiply_add(element), "ijc"),
        f"%product = tensor.collapse_shape %grouped {splits[2]} : {sums.kind} into {result}",
    ]


def _padded(problem: Conv2d) -> tuple[list[str], str, str]:
    """Return the lines that pad the image with zeros, its name and its type."""
    plain, factor = _factor_type(problem, "A"), factor_type(problem).name
    if not problem.is_padded:
        return [], "%A", plain
    low, high = problem.padding
    wide = tensor(problem.padded_shape, factor)
    lines = [
        f"%padded = tensor.pad %A low{low} high{high} {{",
        "^bb0(%i: index, %j: index, %k: index, %l: index):",
        f"  tensor.yield %pad : {factor}",
        f"}} : {plain} to {wide}",
    ]
    return lines, "%padded", wide


def _finish(problem: Problem) -> list[str]:
    """Return bias and relu in one op, which IREE fuses; then the return."""
    result, element = operand_type(problem, "C"), problem.element.accumulator
    if not has_epilogue(problem):
        return [f"return %product : {result}"]
    shape = problem.operand_shapes["C"]
    dims = [f"d{axis}" for axis in range(len(shape))]
    whole = ", ".join(dims)
    inputs = [TensorOperand("%product", shape, element, whole, "%p")]
    if problem.has_bias:
        channel = dims[1] if problem.has_channels_first else dims[-1]
        stored = problem.operand_shapes["bias"]
        inputs.append(TensorOperand("%bias", stored, element, channel, "%b"))
    if problem.requant:
        per_channel = problem.requant == "channel"
        axis = (dims[1] if problem.has_channels_first else dims[-1]) if per_channel else "0"
        inputs += [
            TensorOperand("%scale_c", problem.extras["scale_c"], "f32", axis, "%f"),
            TensorOperand("%zero_c", (1,), "i32", "0", "%y"),
        ]
    if problem.add:
        inputs.append(TensorOperand("%add", shape, problem.result.name, whole, "%d"))
    constants, body = finished(problem)
    target = "%C" if _adds_last(problem) else "%target"
    output = TensorOperand(target, shape, mlir_type(problem.result.name), whole, "%o")
    return [
        f"%target = tensor.empty() : {result}",
        *generic("%finished", dims, inputs, output, [*constants, *body]),
        f"return %finished : {result}",
    ]
