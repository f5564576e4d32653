"""What a kernel computes, as a line that its users read."""

from collections.abc import Mapping
from functools import singledispatch

from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.problem import Conv2d, Matmul, Problem
from tilewise.kernels.schedule import Schedule


def formula(problem: Problem) -> str:
    """The result in one line, with the sum's index and all that is added to it."""
    result, terms, bias, where = _sum(problem)
    if problem.has_bias:
        terms += f" + {bias}"
    if problem.accumulates:
        terms = f"{result} + {terms}"
    if problem.has_relu:
        terms = f"max(0, {terms})"
    if problem.ceiling is not None:
        terms = f"min({problem.ceiling}, {terms})"
    if not problem.element.is_float:
        where = ", ".join(filter(None, [where, "modulo 2**32"]))
    return f"{result} = {terms}" + (f"\n{where}" if where else "")


@singledispatch
def _sum(problem: Problem) -> tuple[str, str, str, str]:
    """The result, the sum, the bias, and what else there is to say; one function an operation."""
    raise UnsupportedError(f"op={problem.op} has no formula; give a matmul or a conv2d", "op")


@_sum.register
def _of_matmul(problem: Matmul) -> tuple[str, str, str, str]:
    left = "a[k, i]" if problem.transpose_a else "a[i, k]"
    right = "b[j, k]" if problem.transpose_b else "b[k, j]"
    where = f"for each of {problem.batch} along the first axis" if problem.batch > 1 else ""
    return "out[i, j]", f"sum over k of {left} * {right}", "bias[j]", where


@_sum.register
def _of_convolution(problem: Conv2d) -> tuple[str, str, str, str]:
    pixel = "y*stride + i*dilation - pad, x*stride + j*dilation - pad"
    if problem.has_channels_first:
        image, weights, result = f"image[n, c, {pixel}]", "weights[f, c, i, j]", "out[n, f, y, x]"
    else:
        image, weights, result = f"image[n, {pixel}, c]", "weights[i, j, c, f]", "out[n, y, x, f]"
    where = (
        f"stride={problem.stride}, dilation={problem.dilation}, pad={problem.pad} (zeros), "
        f"groups={problem.groups}, layout {problem.layout}"
    )
    return result, f"sum over i, j, c of\n    {image}\n    * {weights}", "bias[f]", where


def method(schedule: Schedule, accuracy: Mapping[str, float] | None = None) -> str:
    """How a kernel of fewer products than the formula's differs from it; empty for a direct one.

    Args:
        schedule: of the kernel.
        accuracy: its rms errors in those of the direct method, by the kind of operands.
    """
    if schedule.algorithm is None:
        return ""
    lines = [
        f"by fewer products (step {schedule.algorithm.name}): it rounds otherwise than the formula",
        "does, and a NaN, an infinity or an overflow spreads to neighbouring elements",
    ]
    if accuracy:
        kind = max(accuracy, key=lambda name: accuracy[name])
        lines.append(
            f"rms error up to {accuracy[kind]:.2f} times that of the formula ({kind} operands)"
        )
    return "\n".join(lines)
