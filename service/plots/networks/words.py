"""What boxes and tables say of a plan's parts."""

from collections.abc import Sequence
from functools import singledispatch

from tilewise.kernels.mlir.frontend.graph import Size
from tilewise.kernels.problem import Conv2d, Matmul, Problem
from tilewise.kernels.quoting import duration

FUSED = {
    "addition": "residual",
    "broadcast_a": "repeated A",
    "broadcast_b": "repeated B",
    "transpose_a": "transposed A",
    "transpose_b": "transposed B",
    "transpose_c": "transposed C",
}


def told_us(time_us: float | None) -> str:
    """A time with as many digits as mean something, as `tilewise plan` prints it."""
    return "" if time_us is None else duration(time_us)


def told_shape(shape: Sequence[Size], dtype: str) -> str:
    """A tensor's type as MLIR spells it."""
    return "x".join([*("?" if size is None else str(size) for size in shape), dtype])


def told_fused(fused: Sequence[str]) -> tuple[str, ...]:
    """What a layer takes in, as people call it."""
    return tuple(FUSED.get(name, name) for name in fused)


def extents(problem: Problem) -> str:
    """How large a problem is, and of which type."""
    return f"{_sizes(problem)} {problem.element.name}"


@singledispatch
def _sizes(problem: Problem) -> str:
    return problem.canonical.partition(":")[2].partition(",dtype")[0].replace(",", " ")


@_sizes.register
def _of_matmul(problem: Matmul) -> str:
    lead = f"{problem.batch} of " if problem.batch > 1 else ""
    return f"{lead}m={problem.m} n={problem.n} k={problem.k}"


@_sizes.register
def _of_convolution(problem: Conv2d) -> str:
    lead = f"{problem.n}x" if problem.n > 1 else ""
    read, made = ((problem.h, problem.w, problem.ci), (problem.oh, problem.ow, problem.co))
    return " to ".join(lead + "x".join(map(str, shape)) for shape in (read, made))


@singledispatch
def title(problem: Problem) -> str:
    """What a problem does, without its extents."""
    return problem.op


@title.register
def _matmul(problem: Matmul) -> str:
    return "batch matmul" if problem.batch > 1 else problem.op


@title.register
def _convolution(problem: Conv2d) -> str:
    is_depthwise = problem.groups == problem.ci > 1
    parts = [
        "depthwise" if is_depthwise else problem.op,
        f"{problem.kh}x{problem.kw}",
        f"stride {problem.stride}" if problem.stride > 1 else "",
        f"dilation {problem.dilation}" if problem.dilation > 1 else "",
        f"groups {problem.groups}" if problem.groups > 1 and not is_depthwise else "",
    ]
    return " ".join(filter(None, parts))
