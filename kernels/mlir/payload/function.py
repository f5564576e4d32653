"""The linalg-on-tensors function of a problem, to which a transform script is applied.

It takes the operands A, B, bias (if any) and C, and returns C. Read-only arguments are marked, and
C is the result's buffer, so that bufferisation copies neither. The contraction itself widens narrow
operands to the type of the sums.

One elementwise op adds the bias and applies relu, in place on the contraction's view of C, so that
a script can tile it and fuse the contraction. Where columns span the groups of a convolution, or
results are rounded, the contraction has a tensor of its own, and the last op, a copy if there is
nothing else to do, writes to C: a script tiles that op, and each tile reads its part of the sums.
"""

import math
import re
from functools import singledispatch

from tilewise.kernels.mlir.payload.contraction import (
    Contraction,
    contraction,
    gathers_patches,
    pixels,
    read_image,
)
from tilewise.kernels.mlir.payload.factors import (
    argument_of,
    dequantised,
    factor_type,
    widened_a,
    widened_factors,
)
from tilewise.kernels.mlir.payload.images import (
    TAPS,
    grouped_image,
    has_grouped_planes,
    split_filter,
    split_image,
    splits_lines,
    spread_image,
    spreads_channels,
)
from tilewise.kernels.mlir.payload.tensors import (
    Shape,
    TensorOperand,
    cropped,
    gathered,
    generic,
    mlir_type,
    reshape,
    tensor,
    zero_of,
)
from tilewise.kernels.nest import Role, nest_of
from tilewise.kernels.problem import DTYPES, Convolution, DType, Matmul, Problem

ENTRY = "kernel"


def argument_names(problem: Problem) -> tuple[str, ...]:
    """Return the operands in the order in which the payload takes them."""
    return ("A", "B", *problem.extras, "C")


def payload(problem: Problem) -> str:
    """Return the text of `func.func @kernel` for `problem`."""
    op, stored = contraction(problem), problem.operand_shapes["C"]
    seen = op.shapes[2]
    start, initial = _initial(problem, seen)
    values, inputs = _inputs(problem, op)
    computed = _contract(problem, op, (*values, start), "%product")
    name, ending = _epilogue(problem, op)
    back = reshape(name, "%stored", seen, stored, mlir_type(problem.result.name))
    result = f"return {'%stored' if back else name} : {operand_type(problem, 'C')}"
    body = [*widened_factors(problem), *initial, *inputs, *computed, *ending, *back, result]
    return function_of(problem, body)


def function_of(problem: Problem, body: list[str]) -> str:
    """Return `func.func @kernel` of a problem's operands, with its %zero before a body."""
    arguments = ", ".join(_argument(problem, name) for name in argument_names(problem))
    lines = [f"%zero = arith.constant {zero_of(DTYPES[problem.element.accumulator])}", *body]
    text = "\n".join(f"  {line}" for line in lines)
    return f"func.func @{ENTRY}({arguments}) -> {operand_type(problem, 'C')} {{\n{text}\n}}\n"


def operand_type(problem: Problem, name: str) -> str:
    """Return the tensor type of an operand."""
    return tensor(problem.operand_shapes[name], mlir_type(problem.type_of(name)))


def _argument(problem: Problem, name: str) -> str:
    writable = "true" if name == "C" else "false"
    value = argument_of(problem, name)
    return f"{value}: {operand_type(problem, name)} {{bufferization.writable = {writable}}}"


def _initial(problem: Problem, seen: Shape) -> tuple[str, list[str]]:
    """Return a value of zeros, or of C's content, in the shape `seen`, and its lines."""
    element, stored = problem.element.accumulator, problem.operand_shapes["C"]
    kind = tensor(seen, element)
    if writes_apart(problem):
        name, lines = "%sums", [f"%sums = tensor.empty() : {kind}"]
    else:
        lines = reshape("%C", "%result", stored, seen, element)
        name = "%result" if lines else "%C"
        if problem.accumulates:
            return name, lines
    fill = f"%init = linalg.fill ins(%zero : {element}) outs({name} : {kind}) -> {kind}"
    return "%init", [*lines, fill]


def _inputs(problem: Problem, op: Contraction) -> tuple[tuple[str, str], list[str]]:
    """Return the values of A and B in the shapes that the op sees, and their lines."""
    nest, lines, values = nest_of(problem), list[str](), list[str]()
    for role, seen in zip(("A", "B"), op.shapes[:2], strict=True):
        operand = nest.operand(role).name
        made, value, shape = _prepared(problem, operand, seen)
        view = reshape(value, f"%{role}_view", shape, seen, factor_type(problem).name)
        lines += [*made, *view]
        values.append(f"%{role}_view" if view else value)
    return (values[0], values[1]), lines


@singledispatch
def _prepared(problem: Problem, operand: str, seen: Shape) -> tuple[list[str], str, Shape]:
    """Return lines that prepare an operand for a view as `seen`, the value and its shape."""
    return [], f"%{operand}", problem.operand_shapes[operand]


@_prepared.register
def _of_matmul(problem: Matmul, operand: str, seen: Shape) -> tuple[list[str], str, Shape]:
    weights, shape = problem.quantised_weights, problem.operand_shapes[operand]
    if weights is None:
        return [], f"%{operand}", shape
    if operand == "B":
        return dequantised(problem, weights), "%weights", shape
    if problem.dtype == "f32":
        return [], "%A", shape
    return widened_a(problem), "%wide", shape


@_prepared.register
def _of_convolution(
    problem: Convolution, operand: str, seen: Shape
) -> tuple[list[str], str, Shape]:
    if splits_lines(problem):
        return split_image(problem) if operand == "A" else split_filter(problem, seen)
    if operand == "B":
        return [], "%B", problem.operand_shapes["B"]
    if spreads_channels(problem):
        return spread_image(problem, read_image(problem), seen)
    if has_grouped_planes(problem):
        planes = (*seen[:-2], problem.h, problem.w)
        return *grouped_image(problem, planes, seen), seen
    return _image(problem)


def _image(problem: Convolution) -> tuple[list[str], str, Shape]:
    """Return lines that pad, crop and gather the image, the value and its shape."""
    lines, value, shape = list[str](), "%A", problem.operand_shapes["A"]
    if problem.is_padded:
        lines += _padded(problem)
        value, shape = "%padded", problem.padded_shape
    if shape != read_image(problem):  # where oh or ow is 1, MLIR wants it as large as the taps
        lines += cropped(value, shape, read_image(problem), factor_type(problem).name)
        value, shape = "%cropped", read_image(problem)
    if gathers_patches(problem):
        patches, shape = _patches(problem, value, shape)
        return [*lines, *patches], "%patches", shape
    return lines, value, shape


def _padded(problem: Convolution) -> list[str]:
    (low, high), factor = problem.padding, factor_type(problem)
    widens = factor.accumulator != factor.name
    whole = tensor(problem.padded_shape, factor.name)
    names = ("i", *"zyx"[-len(problem.axes) :], "c")
    indices = ", ".join(f"%{name}: index" for name in names)
    return [
        *([f"%blank = arith.constant {zero_of(factor)}"] if widens else []),
        f"%padded = tensor.pad %A low{low} high{high} {{",
        f"^bb0({indices}):",
        f"  tensor.yield {'%blank' if widens else '%zero'} : {factor.name}",
        f"}} : {tensor(problem.operand_shapes['A'], factor.name)} to {whole}",
    ]


def _patches(problem: Convolution, image: str, shape: Shape) -> tuple[list[str], Shape]:
    """Return lines for what taps see of every channel of an nchw image, %patches, and its shape."""
    groups, ci = problem.groups, problem.ci // problem.groups
    seen = (problem.n, groups, ci, *shape[2:])
    *places, column = pixels(problem)
    channels: tuple[str, ...] = ("n", "g", "ci")
    if nest_of(problem).group:  # lines as they are, each once for a column of taps
        if ci == 1:
            seen, channels = (problem.n, groups, *shape[2:]), ("n", "g")
        patches: Shape = (*seen[:-1], problem.kw, problem.ow)
        dims, read = (*channels, "h", "kw", "ow"), f"h, {column}"
    else:
        patches = (problem.n, groups, ci, *problem.window, *problem.outputs)
        names = (f"{kind}{axis}" for kind in "ko" for axis in problem.axes)
        dims, read = (*channels, *names), ", ".join((*places, column))
    lines = reshape(image, "%channels", shape, seen, factor_type(problem).name)
    source, indices = "%channels" if lines else image, f"{', '.join(channels)}, {read}"
    patched = gathered("%patches", source, seen, indices, dims, patches, factor_type(problem).name)
    return [*lines, *patched], patches


def _contract(
    problem: Problem, op: Contraction, values: tuple[str, str, str], name: str
) -> list[str]:
    narrow, wide = factor_type(problem).name, problem.element.accumulator
    a, b, c = (
        TensorOperand(value, shape, element, ", ".join(terms), argument)
        for value, shape, element, terms, argument in zip(
            values, op.shapes, (narrow, narrow, wide), op.maps, ("%a", "%b", "%c"), strict=True
        )
    )
    if op.is_generic:
        reductions = (nest_of(problem).k, *nest_of(problem).named(Role.TAP), *TAPS)
        return generic(name, op.dims, [a, b], c, multiply_add(factor_type(problem)), reductions)
    operands = f"ins({a.value}, {b.value} : {a.kind}, {b.kind}) outs({c.value} : {c.kind})"
    return [f"{name} = {op.op}{op.options} {operands} -> {c.kind}"]


def multiply_add(element: DType) -> list[str]:
    """Return the body that multiplies %a and %b and adds to %c, in the accumulator's type."""
    narrow, wide = element.name, element.accumulator
    kind = "f" if element.is_float else "i"
    a, b, lines = "%a", "%b", []
    if narrow != wide:
        extend = "arith.extf" if element.is_float else "arith.extsi"
        lines = [f"%{x}_wide = {extend} %{x} : {narrow} to {wide}" for x in "ab"]
        a, b = "%a_wide", "%b_wide"
    return [
        *lines,
        f"%p = arith.mul{kind} {a}, {b} : {wide}",
        f"%s = arith.add{kind} %c, %p : {wide}",
        f"linalg.yield %s : {wide}",
    ]


def smooth_lines(epilogue: str, value: str) -> tuple[list[str], list[str]]:
    """Return constants, and lines that make %smooth of a value in f32, as frameworks write them."""
    numbers = {
        "gelu": {"half": 0.5, "one": 1.0, "root": math.sqrt(0.5)},
        "gelu_tanh": {"half": 0.5, "one": 1.0, "root": math.sqrt(2 / math.pi), "cube": 0.044715},
        "silu": {"one": 1.0},
    }[epilogue]
    lines = {
        "gelu": ["%u = arith.mulf X, %root", "%v = math.erf %u", "%w = arith.addf %v, %one",
                 "%h = arith.mulf X, %half", "%smooth = arith.mulf %h, %w"],
        "gelu_tanh": ["%x2 = arith.mulf X, X", "%x3 = arith.mulf %x2, X",
                      "%c = arith.mulf %x3, %cube", "%t = arith.addf X, %c",
                      "%u = arith.mulf %t, %root", "%v = math.tanh %u", "%w = arith.addf %v, %one",
                      "%h = arith.mulf X, %half", "%smooth = arith.mulf %h, %w"],
        "silu": ["%u = arith.negf X", "%v = math.exp %u", "%w = arith.addf %v, %one",
                 "%smooth = arith.divf X, %w"],
    }[epilogue]  # fmt: skip
    constants = [f"%{name} = arith.constant {number!r}" for name, number in numbers.items()]
    own = re.compile(r"%(?!smooth)")  # no name that what is around the body has
    defined, computed = (
        [f"{own.sub('%e_', line)} : f32" for line in each] for each in (constants, lines)
    )
    return defined, [line.replace("X", value) for line in computed]


def has_epilogue(problem: Problem) -> bool:
    """Return whether sums are changed before they are stored, as by a bias or relu."""
    return problem.has_bias or problem.has_relu or nest_of(problem).store.finishes_apart


def bias_dims(problem: Problem, op: Contraction) -> tuple[str, ...]:
    """Return the dims of the contraction that the bias has; none without a bias."""
    return channels_of(problem, op) if problem.has_bias else ()


def channels_of(problem: Problem, op: Contraction) -> tuple[str, ...]:
    """Return the dims of the contraction that tell columns or output channels apart."""
    channels = ("g", "co", "f") if problem.spatial_axes else ("n",)
    return tuple(d for d in op.result_dims if d in channels)


def writes_apart(problem: Problem) -> bool:
    """Return whether the sums are a tensor of their own, and the last op writes them to C."""
    nest = nest_of(problem)
    return nest.group > 0 or nest.store.finishes_apart


def _epilogue(problem: Problem, op: Contraction) -> tuple[str, list[str]]:
    """Return the value that %product becomes, and its lines."""
    apart, element = writes_apart(problem), problem.element.accumulator
    lines, target, result = list[str](), "%product", mlir_type(problem.result.name)
    if apart:
        lines = reshape("%C", "%result", problem.operand_shapes["C"], op.shapes[2], result)
        target = "%result" if lines else "%C"
    if has_epilogue(problem):
        return "%finished", [*lines, *_elementwise(problem, op, target)]
    if not apart:
        return "%product", []
    kind = tensor(op.shapes[2], element)
    copy = f"%finished = linalg.copy ins(%product : {kind}) outs({target} : {kind}) -> {kind}"
    return "%finished", [*lines, copy]


def _elementwise(problem: Problem, op: Contraction, target: str) -> list[str]:
    """Return the op with bias and relu; %product is an input, unless it is the target."""
    element, dims, seen = problem.element.accumulator, ", ".join(op.result_dims), op.shapes[2]
    lines, apart = list[str](), target != "%product"
    inputs = [TensorOperand("%product", seen, element, dims, "%p")] if apart else []
    if channels := bias_dims(problem, op):
        extents = dict(zip(op.result_dims, seen, strict=True))
        shape = tuple(extents[dim] for dim in channels)
        lines = reshape("%bias", "%addend", problem.operand_shapes["bias"], shape, element)
        bias = "%addend" if lines else "%bias"
        inputs = [TensorOperand(bias, shape, element, ", ".join(channels), "%b"), *inputs]
    if problem.add:
        stored = problem.operand_shapes["C"]
        shaped = reshape("%add", "%residual", stored, seen, problem.result.name)
        lines += shaped
        added = "%residual" if shaped else "%add"
        inputs.append(TensorOperand(added, seen, problem.result.name, dims, "%d"))
    if problem.requant:
        per = channels_of(problem, op) if problem.requant == "channel" else ()
        shape = tuple(dict(zip(op.result_dims, seen, strict=True))[dim] for dim in per) or (1,)
        shaped = reshape("%scale_c", "%scales", problem.operand_shapes["scale_c"], shape, "f32")
        lines += shaped
        scale = "%scales" if shaped else "%scale_c"
        inputs += [
            TensorOperand(scale, shape, "f32", ", ".join(per) or "0", "%f"),
            TensorOperand("%zero_c", (1,), "i32", "0", "%y"),
        ]
    constants, body = finished(problem)
    output = TensorOperand(
        target, seen, mlir_type(problem.result.name), dims, "%o" if apart else "%p"
    )
    return [*lines, *constants, *generic("%finished", op.result_dims, inputs, output, body)]


def finished(problem: Problem) -> tuple[list[str], list[str]]:
    """Return constants, and the body that makes a result of sum %p, bias %b and addition %d.

    Where the sums are apart from C, which they are added to, C's element is %o.
    """
    element, is_float = problem.element.accumulator, problem.element.is_float
    constants, body, value = list[str](), list[str](), "%p"
    plus = f"arith.add{'f' if is_float else 'i'}"
    if problem.has_bias:
        body = [f"%biased = {plus} %p, %b : {element}"]
        value = "%biased"
    if problem.add or (problem.accumulates and writes_apart(problem)):
        other = "%d" if problem.add else "%o"
        if problem.out:
            body.append(f"%wide = arith.extf {other} : {problem.out} to {element}")
            other = "%wide"
        body.append(f"%added = {plus} {value}, {other} : {element}")
        value = "%added"
    if problem.has_relu:
        maximum = "arith.maximumf" if is_float else "arith.maxsi"
        body = [*body, f"%relu = {maximum} {value}, %zero : {element}"]
        value = "%relu"
        if problem.ceiling is not None:
            constants = [f"%ceiling = arith.constant {problem.ceiling}.0 : {element}"]
            body = [*body, f"%limited = arith.minimumf %relu, %ceiling : {element}"]
            value = "%limited"
    if problem.function.is_smooth:
        constants, smooth = smooth_lines(problem.epilogue, value)
        body, value = [*body, *smooth], "%smooth"
    if problem.requant:
        limits, quantised = _requantised(problem, value)
        constants, body, value = [*constants, *limits], [*body, *quantised], "%byte"
    elif problem.out:
        body = [*body, f"%rounded = arith.truncf {value} : {element} to {problem.out}"]
        value = "%rounded"
    return constants, [*body, f"linalg.yield {value} : {mlir_type(problem.result.name)}"]


def _requantised(problem: Problem, value: str) -> tuple[list[str], list[str]]:
    least, most = (0, 255) if problem.out == "u8" else (-128, 127)
    constants = [f"%{name} = arith.constant {limit}.0 : f32"
                 for name, limit in (("least", least), ("most", most))]  # fmt: skip
    return constants, [
        f"%real = arith.sitofp {value} : i32 to f32",
        "%scaled = arith.mulf %real, %f : f32",
        "%whole = math.roundeven %scaled : f32",
        "%point = arith.sitofp %y : i32 to f32",
        "%moved = arith.addf %whole, %point : f32",
        "%above = arith.maximumf %moved, %least : f32",
        "%inside = arith.minimumf %above, %most : f32",
        "%integer = arith.fptosi %inside : f32 to i32",
        "%byte = arith.trunci %integer : i32 to i8",
    ]
