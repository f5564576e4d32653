"""A schedule's kernel as a Python module of its own, for `tilewise kernel`.

The module imports only numba and numpy. It has the driver with its sizes filled in,
the helpers that pack, and the micro-kernel as LLVM IR text, which an intrinsic links
into the compiled driver: the code, and so the speed, is that of the tuned kernel.
"""

import json
import sys
from dataclasses import dataclass
from math import prod
from textwrap import indent
from typing import Any

import numpy as np

from kernels.errors import KernelsError, TargetError, UnsupportedError
from kernels.native.executable import Plan, plan
from kernels.native.module_text import HEAD, LINK, PUBLIC, check_text
from kernels.native.standalone import driver_text, helpers_text, kernel_text
from kernels.problem import Conv2d, Matmul, Problem, parse_problem
from kernels.problem.iteration import iteration_space
from kernels.reference import NUMPY_TYPES, error_bound
from kernels.schedule import Schedule
from kernels.target import resolve
from kernels.target.model import Target
from kernels.toolchain import identity

_WIDTH_FEATURES = {64: ("avx512f",), 32: ("avx2",)}
_INTRINSIC_FEATURES = {
    "llvm.x86.avx512.vpdp": "avx512vnni",
    "llvm.x86.avx512bf16": "avx512bf16",
}
_IMPORTS = {
    "from numba import njit, types",
    "from numba.core.cgutils import ir",
    "from numba.core.codegen import ll",
    "from numba.core.compiler_machinery import SimpleTimer",
    "from numba.extending import intrinsic",
}


@dataclass(frozen=True)
class Tuned:
    """What is known of a schedule's speed where it was tuned.

    Attributes:
        gflops: its speed.
        peak_fraction: the share of the peak measured in the same run.
        toolchain: with what it was measured.
    """

    gflops: float
    peak_fraction: float
    toolchain: str


def export(
    problem: Problem,
    schedule: Schedule,
    target: Target,
    tuned: Tuned | None = None,
    toolchain: str | None = None,
) -> str:
    """The source of a module with the kernel of `schedule`; the same for the same arguments.

    Args:
        problem: what the kernel computes.
        schedule: how.
        target: the machine that it is for.
        tuned: its speed, where it is known.
        toolchain: what made the module; None asks `kernels.toolchain`.

    Raises:
        UnsupportedError: no exported module covers the problem.
        TargetError: several threads.
        ScheduleError: the schedule cannot be applied to the problem.
        LoweringError: it asks for what the target has not.
    """
    _check_exported(problem, target)
    planned = plan(problem, schedule, target)
    kernel = kernel_text(planned.spec)
    needs = needed_features(kernel.text, target)
    names = "".join(f'    "{name}",\n' for name in kernel.functions.values())
    imports, helpers = helpers_text(planned)
    parts = [
        f'"""{_docstring(problem, schedule, target, planned, needs, tuned)}"""',
        "\n".join(
            [
                "import numpy as np",
                *sorted(
                    {*imports, *_IMPORTS} - {"from numba import njit", "from numba import types"}
                ),
            ]
        ),
        HEAD.format(problem=problem, needs=needs, target=target.canonical),
        _facts(problem, planned),
        f"# The micro-kernel and its packs, all i64: addresses in bytes, strides in elements.\n"
        f"# Made by {toolchain or identity()}.\n"
        f'KERNELS = """\n{kernel.text}"""\nNAMES = (\n{names})',
        LINK,
        helpers,
        driver_text(planned, kernel.functions),
        PUBLIC.format(**_public(problem)),
        _check_text(problem),
    ]
    return "\n\n\n".join(part.strip() for part in parts) + "\n"


def _check_exported(problem: Problem, target: Target) -> None:
    """Refuse what the public function has no place for, before it could be printed wrong."""
    if getattr(problem, "weights", "variable") == "constant":
        raise UnsupportedError(
            f"{problem}: an exported kernel packs weights in every call; give weights=variable",
            "weights",
        )
    if target.threads != 1:
        raise TargetError(f"an exported kernel runs on one thread, not {target.threads}")


def needed_features(text: str, target: Target) -> tuple[str, ...]:
    """The features of the target that the IR is written for, by LLVM's names.

    Without them it would not compile, or run many times slower.
    """
    needs = set(_WIDTH_FEATURES.get(target.vector_bytes, ("neon",)))
    needs |= {feature for name, feature in _INTRINSIC_FEATURES.items() if name in text}
    if "llvm.fma." in text:
        needs.add("fma")
    if "x half>" in text:
        needs.add("f16c")
    if target.vector_bytes == 64 and ("x i8>" in text or "x i16>" in text):
        needs.add("avx512bw")
    return tuple(sorted(needs & target.features))


def _accumulates(problem: Problem) -> bool:
    return getattr(problem, "init", "zero") == "accumulate"


def _types(problem: Problem) -> dict[str, str]:
    """NumPy's name of each operand's type."""
    inner, outer = problem.element.name, problem.element.accumulator
    names = {name: outer if name in ("C", "bias") else inner for name in problem.operand_shapes}
    return {name: np.dtype(NUMPY_TYPES[dtype]).name for name, dtype in names.items()}


def _docstring(
    problem: Problem,
    schedule: Schedule,
    target: Target,
    planned: Plan,
    needs: tuple[str, ...],
    tuned: Tuned | None,
) -> str:
    first, second = _operand_names(problem)
    shown = {"A": first, "B": second, "C": "out", "bias": "bias"}
    shapes, dtypes = problem.operand_shapes, _types(problem)
    operands = [f"{shown[name]:<8} {dtypes[name]}{list(shape)}" for name, shape in shapes.items()]
    sections = {
        "Problem": str(problem),
        "Computes": _formula(problem),
        "Operands, contiguous NumPy arrays": "\n".join(operands),
        "Call": f"from MODULE import {problem.op}\n{_call(problem)}",
        f"Schedule {schedule.hash}, outermost first": str(schedule),
        "Loop nest": str(planned.nest),
        "Tuned for": f"{target.canonical}; needs {', '.join(needs) or 'no extension'}"
        + _speed(tuned),
    }
    text = "\n\n".join(f"{title}:\n{indent(body, '    ')}" for title, body in sections.items())
    hint = "The first call compiles, for a second or two. Run the file to check and time it."
    return f"{problem.op.capitalize()}, a kernel tuned by Tilewise.\n\n{text}\n\n{hint}\n"


def _speed(tuned: Tuned | None) -> str:
    if tuned is None:
        return ""
    return (
        f"\n{tuned.gflops:.1f} GFLOP/s on one core, {tuned.peak_fraction:.1%} of its peak,"
        f"\nmeasured with {tuned.toolchain}"
    )


def _operand_names(problem: Problem) -> tuple[str, str]:
    return ("image", "weights") if isinstance(problem, Conv2d) else ("a", "b")


def _formula(problem: Problem) -> str:
    """The result in one line, with the sum's index and all that is added to it."""
    if isinstance(problem, Conv2d):
        rows, cols = "y*stride + i*dilation - pad", "x*stride + j*dilation - pad"
        if problem.layout == "nhwc_hwcf":
            image, weights, result = (
                f"image[n, {rows}, {cols}, c]",
                "weights[i, j, c, f]",
                "out[n, y, x, f]",
            )
        else:
            image, weights, result = (
                f"image[n, c, {rows}, {cols}]",
                "weights[f, c, i, j]",
                "out[n, f, y, x]",
            )
        terms = f"sum over i, j, c of\n    {image}\n    * {weights}"
        where = (
            f"stride={problem.stride}, dilation={problem.dilation}, pad={problem.pad} (zeros), "
            f"groups={problem.groups}, layout {problem.layout}"
        )
    else:
        assert isinstance(problem, Matmul)
        left = "a[k, i]" if problem.transpose_a else "a[i, k]"
        right = "b[j, k]" if problem.transpose_b else "b[k, j]"
        terms, where, result = f"sum over k of {left} * {right}", "", "out[i, j]"
        if problem.batch > 1:
            where = f"for each of {problem.batch} along the first axis"
    if "bias" in problem.operand_shapes:
        terms += " + bias[f]" if isinstance(problem, Conv2d) else " + bias[j]"
    if _accumulates(problem):
        terms = f"{result} + {terms}"
    if getattr(problem, "epilogue", "none") == "relu":
        terms = f"max(0, {terms})"
    if not problem.element.is_float:
        where = ", ".join(filter(None, [where, "modulo 2**32"]))
    return f"{result} = {terms}" + (f"\n{where}" if where else "")


def _call(problem: Problem) -> str:
    names = ", ".join(_operand_names(problem))
    bias = ", bias=bias" if "bias" in problem.operand_shapes else ""
    if _accumulates(problem):
        return f"{problem.op}({names}, out{bias})  # adds to out"
    return f"out = {problem.op}({names}{bias})"


def _facts(problem: Problem, planned: Plan) -> str:
    """Shapes, types and scratch, as assignments."""
    dtypes = _types(problem)
    lines = [
        f"{name.upper()}_SHAPE, {name.upper()}_TYPE = {shape}, np.dtype({dtypes[name]!r})"
        for name, shape in problem.operand_shapes.items()
    ]
    scratch = tuple(planned.sizes[f"scratch_{operand}"] for operand in ("a", "b"))
    return "\n".join([*lines, f"SCRATCH_BYTES = {scratch}  # packed A, packed B"])


def _public(problem: Problem) -> dict[str, Any]:
    first, second = _operand_names(problem)
    factors = {"A": first, "B": second}
    space = iteration_space(problem)
    has_bias = "bias" in problem.operand_shapes
    if _accumulates(problem):
        out = 'raise ValueError("give out: this kernel adds to what it holds")'
    else:
        out = "out = np.empty(C_SHAPE, C_TYPE)"
    if has_bias:
        bias = '    _check("bias", bias, BIAS_SHAPE, BIAS_TYPE)'
    else:
        bias = '    if bias is not None:\n        raise ValueError("this kernel adds no bias")'
    return {
        "op": problem.op,
        "first": first,
        "second": second,
        "a": factors[space.operand("A")],
        "b": factors[space.operand("B")],
        "out": out,
        "bias": bias,
        "bias_address": "bias.ctypes.data" if has_bias else "0",
        "reads": f"{first}, {second}" + (", bias" if has_bias else ""),
    }


def _check_text(problem: Problem) -> str:
    """The self-check; floats may be off by what rounding a sum of this length allows."""
    length = problem.flops // (2 * prod(problem.operand_shapes["C"])) + 2
    element = problem.element
    bound = error_bound(length, element.accumulator) if element.is_float else 0.0
    return check_text(problem, bound, _accumulates(problem))


def export_result(found: dict[str, Any]) -> str:
    """The module for a stored result, as `tilewise show --json` gives it.

    Raises:
        TargetError: it was tuned for another machine.
        KernelsError: as `export`, when another toolchain knew what this one does not.
    """
    best = found["best"]
    return export(
        parse_problem(found["problem"]),
        Schedule.from_json(best["steps"]),
        resolve(found["target"]),
        Tuned(best["gflops"], best["peak_fraction"], found["toolchain"]),
    )


def main() -> None:
    """Answer the result on stdin with its module on stdout; a refusal is one line on stderr."""
    try:
        text = export_result(json.load(sys.stdin))
    except KernelsError as error:
        sys.exit(" ".join(str(error).split()))
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
