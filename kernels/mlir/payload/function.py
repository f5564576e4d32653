"""What happens to the contraction's result: one elementwise op adds the bias and applies relu.

It works in place on the contraction's view of C, so that a script can tile it and compute
the contraction tile by tile inside of its loops. Where columns span the groups of a convolution,
the contraction has a tensor of its own, and the last op, a copy if there is nothing to add, writes
to C: a script cuts that op into panes, and each reads its part of the sums.


The linalg-on-tensors function of a problem: what a transform script is applied to.

The function takes the operands in the order A, B, bias (where there is one), C and
returns C. Arguments that are only read say so, and C is the buffer that the result
is written to, so that bufferisation copies neither. Narrow operands are widened to the
type of C by the contraction itself, element by element.

"""

from functools import singledispatch

from tilewise.kernels.mlir.payload.contraction import (
    Contraction,
    affine_map,
    contraction,
    gathers_patches,
    pixels,
    read_image,
    words,
)
from tilewise.kernels.mlir.payload.images import (
    TAPS,
    cropped,
    grouped_image,
    has_grouped_planes,
    split_filter,
    split_image,
    splits_lines,
    spread_image,
    spreads_channels,
)
from tilewise.kernels.mlir.payload.tensors import Shape, reshape, tensor
from tilewise.kernels.nest import nest_of
from tilewise.kernels.problem import Conv2d, Problem


def has_epilogue(problem: Problem) -> bool:
    """Whether there is a bias, or relu."""
    return problem.has_bias or problem.has_relu


def bias_dims(problem: Problem, op: Contraction) -> tuple[str, ...]:
    """The dims of the contraction that the bias has; none without a bias."""
    channels = ("g", "co", "f") if problem.spatial_axes else ("n",)
    return tuple(d for d in op.result_dims if d in channels) if problem.has_bias else ()


def epilogue(problem: Problem, op: Contraction) -> tuple[str, list[str]]:
    """The value that %product becomes, and the lines that make it."""
    apart, element = writes_apart(problem), problem.element.accumulator
    lines, target = list[str](), "%product"
    if apart:
        lines = reshape("%C", "%result", problem.operand_shapes["C"], op.shapes[2], element)
        target = "%result" if lines else "%C"
    if has_epilogue(problem):
        return "%finished", [*lines, *_elementwise(problem, op, target)]
    if not apart:
        return "%product", []
    kind = tensor(op.shapes[2], element)
    copy = f"%finished = linalg.copy ins(%product : {kind}) outs({target} : {kind}) -> {kind}"
    return "%finished", [*lines, copy]


def _elementwise(problem: Problem, op: Contraction, target: str) -> list[str]:
    """The op with the bias and relu; of %product as an input, unless that is its target."""
    element, dims = problem.element.accumulator, ", ".join(op.result_dims)
    kind, result = ("f" if problem.element.is_float else "i"), tensor(op.shapes[2], element)
    lines, body, value = list[str](), list[str](), "%p"
    inputs = [("%product", result, dims, "%p")] if target != "%product" else []
    if channels := bias_dims(problem, op):
        extents = dict(zip(op.result_dims, op.shapes[2], strict=True))
        shape = tuple(extents[dim] for dim in channels)
        lines = reshape("%bias", "%addend", problem.operand_shapes["bias"], shape, element)
        bias = "%addend" if lines else "%bias"
        inputs = [(bias, tensor(shape, element), ", ".join(channels), "%b"), *inputs]
        body, value = [f"  %biased = arith.add{kind} %p, %b : {element}"], "%biased"
    if problem.has_relu:
        maximum = "arith.maximumf" if problem.element.is_float else "arith.maxsi"
        body = [*body, f"  %relu = {maximum} {value}, %zero : {element}"]
        value = "%relu"
        if problem.ceiling is not None:
            lines = [*lines, f"%ceiling = arith.constant {problem.ceiling}.0 : {element}"]
            body = [*body, f"  %limited = arith.minimumf %relu, %ceiling : {element}"]
            value = "%limited"
    operands = [*inputs, (target, result, dims, "%o" if target != "%product" else "%p")]
    values, kinds, seen, names = zip(*operands, strict=True)
    maps = ", ".join(affine_map(op.result_dims, one) for one in seen)
    taken = f"ins({', '.join(values[:-1])} : {', '.join(kinds[:-1])}) " if inputs else ""
    return [
        *lines,
        f"%finished = linalg.generic {{indexing_maps = [{maps}], "
        f"iterator_types = [{words(len(op.result_dims) * ['parallel'])}]}} "
        f"{taken}outs({target} : {result}) {{",
        f"^bb0({', '.join(f'{name}: {element}' for name in names)}):",
        *body,
        f"  linalg.yield {value} : {element}",
        f"}} -> {result}",
    ]


def writes_apart(problem: Problem) -> bool:
    """Whether the sums are a tensor of their own, and the last op writes them to C."""
    return nest_of(problem).group > 0


ENTRY = "kernel"


def argument_names(problem: Problem) -> tuple[str, ...]:
    """The operands in the order in which the payload takes them."""
    return ("A", "B", "bias", "C") if problem.has_bias else ("A", "B", "C")


def payload(problem: Problem) -> str:
    """The text of `func.func @kernel` for `problem`."""
    arguments = ", ".join(_argument(problem, name) for name in argument_names(problem))
    result = _tensor(problem, "C")
    lines = [
        f"%zero = arith.constant {_blank(problem)} : {problem.element.accumulator}",
        *_product(problem),
    ]
    text = "\n".join(f"  {line}" for line in lines)
    return f"func.func @{ENTRY}({arguments}) -> {result} {{\n{text}\n}}\n"


def _tensor(problem: Problem, name: str) -> str:
    return tensor(problem.operand_shapes[name], _element(problem, name))


def _element(problem: Problem, name: str) -> str:
    return problem.element.name if name in ("A", "B") else problem.element.accumulator


def _argument(problem: Problem, name: str) -> str:
    writable = "true" if name == "C" else "false"
    return f"%{name}: {_tensor(problem, name)} {{bufferization.writable = {writable}}}"


def _blank(problem: Problem) -> str:
    return "0.0" if problem.element.is_float else "0"


# The contraction, and what happens to its result


def _product(problem: Problem) -> list[str]:
    """The contraction and the epilogue on the operands' views; the result in C's shape."""
    op, stored = contraction(problem), problem.operand_shapes["C"]
    seen, element = op.shapes[2], problem.element.accumulator
    start, initial = _initial(problem, seen)
    values, inputs = _inputs(problem, op)
    computed = _contract(problem, op, (*values, start), "%product")
    name, ending = epilogue(problem, op)
    back = reshape(name, "%stored", seen, stored, element)
    result = f"return {'%stored' if back else name} : {_tensor(problem, 'C')}"
    return [*initial, *inputs, *computed, *ending, *back, result]


def _initial(problem: Problem, seen: Shape) -> tuple[str, list[str]]:
    """The value that holds zero, or what C holds, in the shape `seen`; its lines."""
    element, stored = problem.element.accumulator, problem.operand_shapes["C"]
    if writes_apart(problem):
        kind = tensor(seen, element)
        return "%init", [
            f"%sums = tensor.empty() : {kind}",
            f"%init = linalg.fill ins(%zero : {element}) outs(%sums : {kind}) -> {kind}",
        ]
    view = reshape("%C", "%result", stored, seen, element)
    name, kind = ("%result" if view else "%C"), tensor(seen, element)
    if problem.accumulates:
        return name, view
    fill = f"%init = linalg.fill ins(%zero : {element}) outs({name} : {kind}) -> {kind}"
    return "%init", [*view, fill]


# What it multiplies


def _inputs(problem: Problem, op: Contraction) -> tuple[tuple[str, str], list[str]]:
    """The values of the roles A and B in the shapes that the op sees, and their lines."""
    nest, lines, values = nest_of(problem), list[str](), list[str]()
    for role, seen in zip(("A", "B"), op.shapes[:2], strict=True):
        operand = nest.operand(role).name
        made, value, shape = _prepared(problem, operand, seen)
        view = reshape(value, f"%{role}_view", shape, seen, problem.element.name)
        lines += [*made, *view]
        values.append(f"%{role}_view" if view else value)
    return (values[0], values[1]), lines


@singledispatch
def _prepared(problem: Problem, operand: str, seen: Shape) -> tuple[list[str], str, Shape]:
    """Lines that prepare an operand for a view as `seen`; the value and its shape."""
    return [], f"%{operand}", problem.operand_shapes[operand]


@_prepared.register
def _of_convolution(problem: Conv2d, operand: str, seen: Shape) -> tuple[list[str], str, Shape]:
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


def _image(problem: Conv2d) -> tuple[list[str], str, Shape]:
    """Lines that pad, crop and gather the image; the value and its shape."""
    lines, value, shape = list[str](), "%A", problem.operand_shapes["A"]
    if problem.pad:
        lines += _padded(problem)
        value, shape = "%padded", problem.padded_shape
    if shape != read_image(problem):  # where oh or ow is 1, MLIR wants it as large as the taps
        lines += cropped(value, shape, read_image(problem), problem.dtype)
        value, shape = "%cropped", read_image(problem)
    if gathers_patches(problem):
        gathered, shape = _gathered(problem, value, shape)
        return [*lines, *gathered], "%patches", shape
    return lines, value, shape


def _padded(problem: Conv2d) -> list[str]:
    axes = [problem.pad if axis in problem.spatial_axes else 0 for axis in range(4)]
    widens = problem.element.accumulator != problem.dtype
    constant = f"%blank = arith.constant {_blank(problem)} : {problem.dtype}"
    return [
        *([constant] if widens else []),
        f"%padded = tensor.pad %A low{axes} high{axes} {{",
        "^bb0(%i: index, %y: index, %x: index, %c: index):",
        f"  tensor.yield {'%blank' if widens else '%zero'} : {problem.dtype}",
        f"}} : {_tensor(problem, 'A')} to {tensor(problem.padded_shape, problem.dtype)}",
    ]


def _gathered(problem: Conv2d, image: str, shape: Shape) -> tuple[list[str], Shape]:
    """What taps see of every channel of the nchw `image`, as %patches; its shape."""
    groups, ci = problem.groups, problem.ci // problem.groups
    seen = (problem.n, groups, ci, *shape[2:])
    line, column = pixels(problem).split(", ")
    channels: tuple[str, ...] = ("n", "g", "ci")
    if nest_of(problem).group:  # lines as they are, each once for a column of taps
        if ci == 1:
            seen, channels = (problem.n, groups, *shape[2:]), ("n", "g")
        patches: Shape = (*seen[:-1], problem.kw, problem.ow)
        dims, read = (*channels, "h", "kw", "ow"), f"h, {column}"
    else:
        patches = (*seen[:-2], problem.kh, problem.kw, problem.oh, problem.ow)
        dims, read = (*channels, "kh", "kw", "oh", "ow"), f"{line}, {column}"
    lines = reshape(image, "%channels", shape, seen, problem.dtype)
    source = "%channels" if lines else image
    maps = [affine_map(dims, f"{', '.join(channels)}, {read}"), affine_map(dims, ", ".join(dims))]
    result = tensor(patches, problem.dtype)
    return [
        *lines,
        f"%unset = tensor.empty() : {result}",
        f"%patches = linalg.generic {{indexing_maps = [{', '.join(maps)}], "
        f"iterator_types = [{words(len(dims) * ['parallel'])}]}} "
        f"ins({source} : {tensor(seen, problem.dtype)}) outs(%unset : {result}) {{",
        f"^bb0(%i: {problem.dtype}, %o: {problem.dtype}):",
        f"  linalg.yield %i : {problem.dtype}",
        f"}} -> {result}",
    ], patches


def _contract(
    problem: Problem, op: Contraction, values: tuple[str, str, str], name: str
) -> list[str]:
    narrow, wide = problem.element.name, problem.element.accumulator
    a, b = (tensor(shape, narrow) for shape in op.shapes[:2])
    result = tensor(op.shapes[2], wide)
    operands = f"ins({values[0]}, {values[1]} : {a}, {b}) outs({values[2]} : {result})"
    if not op.is_generic:
        return [f"{name} = {op.op}{op.options} {operands} -> {result}"]
    reductions = nest_of(problem).k, "kh", "kw", *TAPS
    kinds = ["reduction" if dim in reductions else "parallel" for dim in op.dims]
    maps = ", ".join(affine_map(op.dims, results) for results in op.maps)
    return [
        f"{name} = linalg.generic {{indexing_maps = [{maps}], "
        f"iterator_types = [{words(kinds)}]}} {operands} {{",
        f"^bb0(%a: {narrow}, %b: {narrow}, %c: {wide}):",
        *(f"  {line}" for line in _body(problem)),
        f"}} -> {result}",
    ]


def _body(problem: Problem) -> list[str]:
    """Multiply and add %a and %b to %c, in the accumulator's type."""
    narrow, wide = problem.element.name, problem.element.accumulator
    kind = "f" if problem.element.is_float else "i"
    a, b, lines = "%a", "%b", []
    if narrow != wide:
        extend = "arith.extf" if problem.element.is_float else "arith.extsi"
        lines = [f"%{x}_wide = {extend} %{x} : {narrow} to {wide}" for x in "ab"]
        a, b = "%a_wide", "%b_wide"
    return [
        *lines,
        f"%p = arith.mul{kind} {a}, {b} : {wide}",
        f"%s = arith.add{kind} %c, %p : {wide}",
        f"linalg.yield %s : {wide}",
    ]
