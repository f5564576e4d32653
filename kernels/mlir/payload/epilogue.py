"""What happens to the contraction's result: one elementwise op adds the bias and applies relu.

It works in place on the contraction's view of C, so that a script can tile it and compute
the contraction tile by tile inside of its loops.
"""

from kernels.mlir.payload.contraction import Contraction, affine_map, words
from kernels.mlir.payload.reshape import reshape, tensor
from kernels.problem import Conv2d, Problem


def has_epilogue(problem: Problem) -> bool:
    """Whether there is a bias, or relu."""
    return problem.has_bias or problem.has_relu


def bias_dims(problem: Problem, op: Contraction) -> tuple[str, ...]:
    """The dims of the contraction that the bias has; none without a bias."""
    channels = ("g", "co", "f") if isinstance(problem, Conv2d) else ("n",)
    return tuple(d for d in op.result_dims if d in channels) if problem.has_bias else ()


def epilogue(problem: Problem, op: Contraction) -> tuple[str, list[str]]:
    """The value that %product becomes, and the lines that make it."""
    if not has_epilogue(problem):
        return "%product", []
    element, dims = problem.element.accumulator, op.result_dims
    kind, result = ("f" if problem.element.is_float else "i"), tensor(op.shapes[2], element)
    lines, body, value = [], [], "%p"
    maps, inputs, taken = [", ".join(dims)], "", ""
    if channels := bias_dims(problem, op):
        extents = dict(zip(dims, op.shapes[2], strict=True))
        shape = tuple(extents[dim] for dim in channels)
        lines = reshape("%bias", "%addend", problem.operand_shapes["bias"], shape, element)
        inputs = f"ins({'%addend' if lines else '%bias'} : {tensor(shape, element)}) "
        maps, taken = [", ".join(channels), *maps], f"%b: {element}, "
        body, value = [f"  %biased = arith.add{kind} %p, %b : {element}"], "%biased"
    if problem.has_relu:
        maximum = "arith.maximumf" if problem.element.is_float else "arith.maxsi"
        body = [*body, f"  %relu = {maximum} {value}, %zero : {element}"]
        value = "%relu"
    indexed = ", ".join(affine_map(dims, results) for results in maps)
    return "%finished", [
        *lines,
        f"%finished = linalg.generic {{indexing_maps = [{indexed}], "
        f"iterator_types = [{words(len(dims) * ['parallel'])}]}} "
        f"{inputs}outs(%product : {result}) {{",
        f"^bb0({taken}%p: {element}):",
        *body,
        f"  linalg.yield {value} : {element}",
        f"}} -> {result}",
    ]
