"""A problem as the module that a user of IREE would compile: named ops on tensors.

The last argument is where the result goes (`iree.abi.output`), so that no call has to
allocate. Constant weights are a parameter of the module, as a model's are: IREE then
packs them once, when the module is loaded.
"""

from kernels.problem import Conv2d, Matmul, Problem
from search.peers.variant import PeerAbsentError

ENTRY, SCOPE = "kernel", "model"


def has_constant_weights(problem: Problem) -> bool:
    """Whether B is the module's parameter and no argument."""
    return getattr(problem, "weights", "variable") == "constant"


def accumulates(problem: Problem) -> bool:
    """Whether the first C is an argument too."""
    return getattr(problem, "init", "zero") == "accumulate"


def argument_names(problem: Problem) -> list[str]:
    """The operands that the function reads, in order; where the result goes comes after."""
    names = ["A"] if has_constant_weights(problem) else ["A", "B"]
    if "bias" in problem.operand_shapes:
        names.append("bias")
    return [*names, "C"] if accumulates(problem) else names


def module_text(problem: Problem) -> str:
    """The text of the module.

    Raises:
        PeerAbsentError: no named op computes the problem.
    """
    result = operand_type(problem, "C")
    arguments = [f"%{name}: {operand_type(problem, name)}" for name in argument_names(problem)]
    arguments.append(f"%out: {result} {{iree.abi.output = 0 : index}}")
    lines = [*_weights(problem), *_initial(problem), *_contraction(problem), *_finish(problem)]
    body = "\n".join(f"  {line}" for line in lines)
    parameter = ""
    if has_constant_weights(problem):
        parameter = (
            f'util.global private @weights = #flow.parameter.named<"{SCOPE}"::"B"> : '
            f"{operand_type(problem, 'B')}\n"
        )
    return f"{parameter}func.func @{ENTRY}({', '.join(arguments)}) -> {result} {{\n{body}\n}}\n"


def operand_type(problem: Problem, name: str) -> str:
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
    if not has_constant_weights(problem):
        return []
    return [f"%B = util.global.load @weights : {operand_type(problem, 'B')}"]


def _initial(problem: Problem) -> list[str]:
    """The zeros, and %init: what the contraction adds to."""
    element, result = problem.element.accumulator, operand_type(problem, "C")
    zeros = [_zero("zero", problem, element), _zero("pad", problem, problem.element.name)]
    if accumulates(problem):
        return zeros
    return [
        *zeros,
        f"%empty = tensor.empty() : {result}",
        f"%init = linalg.fill ins(%zero : {element}) outs(%empty : {result}) -> {result}",
    ]


def _contraction(problem: Problem) -> list[str]:
    if isinstance(problem, Matmul):
        return [_apply(problem, *_product(problem), "%A", operand_type(problem, "A"), "%B",
                       operand_type(problem, "B"))]  # fmt: skip
    if isinstance(problem, Conv2d):
        return _convolution(problem)
    raise PeerAbsentError(f"IREE is not asked for {problem.op}")


def _apply(
    problem: Problem, op: str, attributes: str, a: str, a_type: str, b: str, b_type: str
) -> str:
    result = operand_type(problem, "C")
    init = "%C" if accumulates(problem) else "%init"
    return (
        f"%product = {op} {attributes} ins({a}, {b} : {a_type}, {b_type}) "
        f"outs({init} : {result}) -> {result}"
    )


def _product(problem: Matmul) -> tuple[str, str]:
    """The op and its indexing maps, which say what is transposed."""
    lead = "z, " if problem.batch > 1 else ""
    a = "k, m" if problem.transpose_a else "m, k"
    b = "n, k" if problem.transpose_b else "k, n"
    maps = ", ".join(f"affine_map<({lead}m, n, k) -> ({lead}{at})>" for at in (a, b, "m, n"))
    op = "linalg.batch_matmul" if problem.batch > 1 else "linalg.matmul"
    return op, f"indexing_maps = [{maps}]" if problem.transpose_a or problem.transpose_b else ""


def _convolution(problem: Conv2d) -> list[str]:
    nhwc = problem.layout == "nhwc_hwcf"
    attributes = (
        f"{{dilations = dense<{problem.dilation}> : tensor<2xi64>, "
        f"strides = dense<{problem.stride}> : tensor<2xi64>}}"
    )
    lines, image, image_type = _padded(problem)
    filters, filters_type = "%B", operand_type(problem, "B")
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
        raise PeerAbsentError(f"no named op has groups={problem.groups} in {problem.layout}")
    return [*lines, _apply(problem, op, attributes, image, image_type, filters, filters_type)]


def _padded(problem: Conv2d) -> tuple[list[str], str, str]:
    """The lines that pad the image with zeros, its name and its type."""
    shape, plain = problem.operand_shapes["A"], operand_type(problem, "A")
    if not problem.pad:
        return [], "%A", plain
    spatial = (1, 2) if problem.layout == "nhwc_hwcf" else (2, 3)
    by = [problem.pad if axis in spatial else 0 for axis in range(len(shape))]
    grown = tuple(size + 2 * extra for size, extra in zip(shape, by, strict=True))
    wide = _tensor(grown, problem.dtype)
    lines = [
        f"%padded = tensor.pad %A low{by} high{by} {{",
        "^bb0(%i: index, %j: index, %k: index, %l: index):",
        f"  tensor.yield %pad : {problem.dtype}",
        f"}} : {plain} to {wide}",
    ]
    return lines, "%padded", wide


def _finish(problem: Problem) -> list[str]:
    """Bias and relu in one pass, which IREE fuses; then the return."""
    result, element = operand_type(problem, "C"), problem.element.accumulator
    bias = "bias" in problem.operand_shapes
    relu = getattr(problem, "epilogue", "none") == "relu"
    if not bias and not relu:
        return [f"return %product : {result}"]
    rank = len(problem.operand_shapes["C"])
    dims = ", ".join(f"d{i}" for i in range(rank))
    channel = "d1" if getattr(problem, "layout", "") == "nchw_fchw" else f"d{rank - 1}"
    whole = f"affine_map<({dims}) -> ({dims})>"
    maps, inputs, types = [whole], ["%product"], [result]
    if bias:
        maps.append(f"affine_map<({dims}) -> ({channel})>")
        inputs.append("%bias")
        types.append(operand_type(problem, "bias"))
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
