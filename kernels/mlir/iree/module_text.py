"""A problem as the module that a user of IREE would compile: named ops on tensors.

The last argument is where the result goes (`iree.abi.output`), so that no call has to
allocate. Constant weights are a parameter of the module, as a model's are: IREE then
packs them once, when the module is loaded.
"""

from functools import singledispatch

from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.problem import Conv2d, Matmul, Problem

ENTRY, SCOPE = "kernel", "model"


def argument_names(problem: Problem) -> list[str]:
    """The operands that the function reads, in order; where the result goes comes after."""
    names = ["A"] if problem.has_constant_weights else ["A", "B"]
    if problem.has_bias:
        names.append("bias")
    return [*names, "C"] if problem.accumulates else names


def module_text(problem: Problem) -> str:
    """The text of the module.

    Raises:
        UnsupportedError: the operation is not one of ours.
    """
    result = tensor_type(problem, "C")
    arguments = [f"%{name}: {tensor_type(problem, name)}" for name in argument_names(problem)]
    arguments.append(f"%out: {result} {{iree.abi.output = 0 : index}}")
    lines = [*_weights(problem), *_initial(problem), *_contraction(problem), *_finish(problem)]
    body = "\n".join(f"  {line}" for line in lines)
    parameter = ""
    if problem.has_constant_weights:
        parameter = (
            f'util.global private @weights = #flow.parameter.named<"{SCOPE}"::"B"> : '
            f"{tensor_type(problem, 'B')}\n"
        )
    return f"{parameter}func.func @{ENTRY}({', '.join(arguments)}) -> {result} {{\n{body}\n}}\n"


def tensor_type(problem: Problem, name: str) -> str:
    """The tensor type of an operand."""
    return _tensor(problem.operand_shapes[name], _element(problem, name))


def _element(problem: Problem, name: str) -> str:
    element = problem.element
    return element.name if name in ("A", "B") else element.accumulator


def _tensor(shape: tuple[int, ...], element: str) -> str:
    return f"tensor<{'x'.join(map(str, shape))}x{element}>"


def _zero(name: str, problem: Problem, element: str) -> str:
    return f"%{name} = arith.constant {'0.0' if problem.element.is_float else '0'} : {element}"


def _weights(problem: Problem) -> list[str]:
    if not problem.has_constant_weights:
        return []
    return [f"%B = util.global.load @weights : {tensor_type(problem, 'B')}"]


def _initial(problem: Problem) -> list[str]:
    """The zeros, and %init: what the contraction adds to."""
    element, result = problem.element.accumulator, tensor_type(problem, "C")
    zeros = [_zero("zero", problem, element), _zero("pad", problem, problem.element.name)]
    if problem.accumulates:
        return zeros
    return [
        *zeros,
        f"%empty = tensor.empty() : {result}",
        f"%init = linalg.fill ins(%zero : {element}) outs(%empty : {result}) -> {result}",
    ]


@singledispatch
def _contraction(problem: Problem) -> list[str]:
    """The lines that make %product; one function for each operation."""
    raise UnsupportedError(f"op={problem.op} has no module of IREE's; give a matmul or a conv2d")


def _apply(
    problem: Problem, op: str, attributes: str, a: str, a_type: str, b: str, b_type: str
) -> str:
    result = tensor_type(problem, "C")
    init = "%C" if problem.accumulates else "%init"
    return (
        f"%product = {op} {attributes} ins({a}, {b} : {a_type}, {b_type}) "
        f"outs({init} : {result}) -> {result}"
    )


@_contraction.register
def _product(problem: Matmul) -> list[str]:
    """A named op, whose indexing maps say what is transposed."""
    lead = "z, " if problem.batch > 1 else ""
    a = "k, m" if problem.transpose_a else "m, k"
    b = "n, k" if problem.transpose_b else "k, n"
    maps = ", ".join(f"affine_map<({lead}m, n, k) -> ({lead}{at})>" for at in (a, b, "m, n"))
    op = "linalg.batch_matmul" if problem.batch > 1 else "linalg.matmul"
    attributes = f"indexing_maps = [{maps}]" if problem.transpose_a or problem.transpose_b else ""
    a_type, b_type = tensor_type(problem, "A"), tensor_type(problem, "B")
    return [_apply(problem, op, attributes, "%A", a_type, "%B", b_type)]


@_contraction.register
def _convolution(problem: Conv2d) -> list[str]:
    nhwc = problem.layout == "nhwc_hwcf"
    attributes = (
        f"{{dilations = dense<{problem.dilation}> : tensor<2xi64>, "
        f"strides = dense<{problem.stride}> : tensor<2xi64>}}"
    )
    lines, image, image_type = _padded(problem)
    filters, filters_type = "%B", tensor_type(problem, "B")
    if problem.groups == 1:
        op = "linalg.conv_2d_nhwc_hwcf" if nhwc else "linalg.conv_2d_nchw_fchw"
    elif problem.groups == problem.ci == problem.co:
        op = "linalg.depthwise_conv_2d_nhwc_hwc" if nhwc else "linalg.depthwise_conv_2d_nchw_chw"
        flat, how = (
            ((problem.kh, problem.kw, problem.co), "[[0], [1], [2, 3]]")
            if nhwc
            else ((problem.co, problem.kh, problem.kw), "[[0, 1], [2], [3]]")
        )
        narrow = _tensor(flat, problem.dtype)
        lines.append(f"%flat = tensor.collapse_shape %B {how} : {filters_type} into {narrow}")
        filters, filters_type = "%flat", narrow
    else:
        return [*lines, *_grouped(problem, image, image_type)]
    return [*lines, _apply(problem, op, attributes, image, image_type, filters, filters_type)]


def _grouped(problem: Conv2d, image: str, image_type: str) -> list[str]:
    """Groups as a dimension of their own, since no named op has these layouts."""
    n, c, f = problem.n, problem.ci // problem.groups, problem.co // problem.groups
    g, h, w = problem.groups, problem.h + 2 * problem.pad, problem.w + 2 * problem.pad
    kh, kw, oh, ow = problem.kh, problem.kw, problem.oh, problem.ow
    row = f"y * {problem.stride} + i * {problem.dilation}"
    col = f"x * {problem.stride} + j * {problem.dilation}"
    if problem.layout == "nhwc_hwcf":
        shapes = (n, h, w, g, c), (kh, kw, c, g, f), (n, oh, ow, g, f)
        maps = f"n, {row}, {col}, g, c", "i, j, c, g, f", "n, y, x, g, f"
        splits = ("[[0], [1], [2], [3, 4]]",) * 3
    else:
        shapes = (n, g, c, h, w), (g, f, c, kh, kw), (n, g, f, oh, ow)
        maps = f"n, g, c, {row}, {col}", "g, f, c, i, j", "n, g, f, y, x"
        channel = "[[0], [1, 2], [3], [4]]"
        splits = channel, "[[0, 1], [2], [3], [4]]", channel
    element = problem.element
    a_type, b_type = (_tensor(shape, element.name) for shape in shapes[:2])
    c_type = _tensor(shapes[2], element.accumulator)
    space = "n, y, x, g, f, i, j, c"
    indexing = ", ".join(f"affine_map<({space}) -> ({at})>" for at in maps)
    iterators = ", ".join(['"parallel"'] * 5 + ['"reduction"'] * 3)
    return [
        f"%ga = tensor.expand_shape {image} {splits[0]} output_shape {list(shapes[0])} : "
        f"{image_type} into {a_type}",
        f"%gb = tensor.expand_shape %B {splits[1]} output_shape {list(shapes[1])} : "
        f"{tensor_type(problem, 'B')} into {b_type}",
        f"%gc = tensor.expand_shape %init {splits[2]} output_shape {list(shapes[2])} : "
        f"{tensor_type(problem, 'C')} into {c_type}",
        f"%grouped = linalg.generic {{indexing_maps = [{indexing}], "
        f"iterator_types = [{iterators}]}} ins(%ga, %gb : {a_type}, {b_type}) "
        f"outs(%gc : {c_type}) {{",
        f"^bb0(%a: {element.name}, %b: {element.name}, %s: {element.accumulator}):",
        *(f"  {line}" for line in _multiply_add(problem)),
        f"}} -> {c_type}",
        f"%product = tensor.collapse_shape %grouped {splits[2]} : {c_type} into "
        f"{tensor_type(problem, 'C')}",
    ]


def _multiply_add(problem: Problem) -> list[str]:
    """%s + %a * %b, in the accumulator's type."""
    element = problem.element
    narrow, wide = element.name, element.accumulator
    extend, multiply, add = (
        ("arith.extf", "arith.mulf", "arith.addf")
        if element.is_float
        else ("arith.extsi", "arith.muli", "arith.addi")
    )
    lines, names = [], {"a": "%a", "b": "%b"}
    if narrow != wide:
        lines = [f"%w{x} = {extend} %{x} : {narrow} to {wide}" for x in names]
        names = {x: f"%w{x}" for x in names}
    return [
        *lines,
        f"%m = {multiply} {names['a']}, {names['b']} : {wide}",
        f"%t = {add} %s, %m : {wide}",
        f"linalg.yield %t : {wide}",
    ]


def _padded(problem: Conv2d) -> tuple[list[str], str, str]:
    """The lines that pad the image with zeros, its name and its type."""
    shape, plain = problem.operand_shapes["A"], tensor_type(problem, "A")
    if not problem.pad:
        return [], "%A", plain
    by = [problem.pad if axis in problem.spatial_axes else 0 for axis in range(len(shape))]
    wide = _tensor(problem.padded_shape, problem.dtype)
    lines = [
        f"%padded = tensor.pad %A low{by} high{by} {{",
        "^bb0(%i: index, %j: index, %k: index, %l: index):",
        f"  tensor.yield %pad : {problem.dtype}",
        f"}} : {plain} to {wide}",
    ]
    return lines, "%padded", wide


def _finish(problem: Problem) -> list[str]:
    """Bias and relu in one pass, which IREE fuses; then the return."""
    result, element = tensor_type(problem, "C"), problem.element.accumulator
    bias = problem.has_bias
    relu = problem.has_relu
    if not bias and not relu:
        return [f"return %product : {result}"]
    rank = len(problem.operand_shapes["C"])
    dims = ", ".join(f"d{i}" for i in range(rank))
    channel = "d1" if problem.has_channels_first else f"d{rank - 1}"
    whole = f"affine_map<({dims}) -> ({dims})>"
    maps, inputs, types = [whole], ["%product"], [result]
    if bias:
        maps.append(f"affine_map<({dims}) -> ({channel})>")
        inputs.append("%bias")
        types.append(tensor_type(problem, "bias"))
    maps.append(whole)
    names = ["%p", "%b", "%o"] if bias else ["%p", "%o"]
    floats = problem.element.is_float
    value, body = "%p", []
    if bias:
        body.append(f"  %s = {'arith.addf' if floats else 'arith.addi'} %p, %b : {element}")
        value = "%s"
    if relu:
        maximum = "arith.maximumf" if floats else "arith.maxsi"
        body.append(f"  %r = {maximum} {value}, %zero : {element}")
        value = "%r"
    if problem.ceiling is not None:
        body += [
            f"  %most = arith.constant {problem.ceiling}.0 : {element}",
            f"  %l = arith.minimumf {value}, %most : {element}",
        ]
        value = "%l"
    parallel = ", ".join(['"parallel"'] * rank)
    return [
        f"%target = tensor.empty() : {result}",
        f"%finished = linalg.generic {{indexing_maps = [{', '.join(maps)}], "
        f"iterator_types = [{parallel}]}} ins({', '.join(inputs)} : {', '.join(types)}) "
        f"outs(%target : {result}) {{",
        f"^bb0({', '.join(f'{name}: {element}' for name in names)}):",
        *body,
        f"  linalg.yield {value} : {element}",
        f"}} -> {result}",
        f"return %finished : {result}",
    ]
