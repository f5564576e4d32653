"""What happens to the contraction's result: one elementwise op adds the bias and applies relu.

It works in place on the contraction's view of C, so that a script can tile it and compute
the contraction tile by tile inside of its loops. Where columns span the groups of a convolution,
the contraction has a tensor of its own, and the last op, a copy if there is nothing to add, writes
to C: a script cuts that op into panes, and each reads its part of the sums.
"""

from tilewise.kernels.mlir.payload.contraction import Contraction, affine_map, words
from tilewise.kernels.mlir.payload.reshape import reshape, tensor
from tilewise.kernels.nest import nest_of
from tilewise.kernels.problem import Problem


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
