"""A schedule's kernel as a Python module of its own, for `tilewise kernel`.

The module imports only numba and numpy. It has the driver with its sizes filled in,
the helpers that pack, and the micro-kernel as LLVM IR text, which an intrinsic links
into the compiled driver: the code, and so the speed, is that of the tuned kernel.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from textwrap import indent
from typing import Any

import numpy as np

from tilewise.kernels.instructions import Instruction
from tilewise.kernels.native.export.driver_source import driver_text
from tilewise.kernels.native.export.formula import formula, method
from tilewise.kernels.native.export.helpers import helpers_text
from tilewise.kernels.native.export.public_function import (
    call_text,
    facts_text,
    locate_text,
    operand_names,
    public_text,
)
from tilewise.kernels.native.export.templates import HEAD, LINK, check_text
from tilewise.kernels.native.jit.ir_text import kernel_text
from tilewise.kernels.native.plan import Plan, plan
from tilewise.kernels.nest import printed
from tilewise.kernels.oracle.accuracy import MOST_TIMES
from tilewise.kernels.oracle.operands import NUMPY_TYPES
from tilewise.kernels.oracle.reference import error_bound
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.system.toolchain import identity
from tilewise.kernels.target.model import Target

_WIDTH_FEATURES = {64: ("avx512f",), 32: ("avx2",)}
_IMPORTS = {
    "from numba import njit, types",
    "from numba.core.cgutils import ir",
    "from numba.core.codegen import ll",
    "from numba.core.compiler_machinery import SimpleTimer",
    "from numba.extending import intrinsic",
}


@dataclass(frozen=True)
class Tuned:
    """What is known of a schedule's speed, and of its rounding, where it was tuned.

    Attributes:
        gflops: its speed.
        peak_fraction: the share of the peak measured in the same run.
        toolchain: with what it was measured.
        accuracy: its rms errors in those of the direct method, by the kind of operands; none if it
            is direct.
    """

    gflops: float
    peak_fraction: float
    toolchain: str
    accuracy: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> "Tuned":
        """What a stored result, as `tilewise show --json` gives it, tells."""
        best = found["best"]
        accuracy = (best.get("measured") or {}).get("accuracy") or {}
        return cls(best["gflops"], best["peak_fraction"], found["toolchain"], accuracy)


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
        toolchain: what made the module; None asks `tilewise.kernels.system.toolchain`.

    Raises:
        ScheduleError: the schedule cannot be applied to the problem.
        LoweringError: it asks for what the target has not.
    """
    planned = plan(problem, schedule, target, shares_driver=False)
    kernel = kernel_text(planned.kernel, planned.use)
    needs = needed_features(kernel.text, planned.spec.how.instruction, target)
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
        facts_text(problem, planned, _types(problem)),
        f"# The micro-kernel and its packs, all i64: addresses in bytes, strides in elements.\n"
        f"# Made by {toolchain or identity()}.\n"
        f'KERNELS = """\n{kernel.text}"""\nNAMES = (\n{names})',
        LINK,
        locate_text(planned),
        helpers,
        driver_text(planned, kernel.functions),
        public_text(problem, planned),
        _check_text(problem, planned),
    ]
    return "\n\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def needed_features(text: str, one: Instruction, target: Target) -> tuple[str, ...]:
    """The features of the target that IR with an instruction is written for, by LLVM's names.

    Without them it would not compile, or run many times slower.
    """
    needs = set(_WIDTH_FEATURES.get(target.vector_bytes, ("neon",)))
    needs |= one.features
    if "x half>" in text:
        needs.add("f16c")
    if target.vector_bytes == 64 and ("x i8>" in text or "x i16>" in text):
        needs.add("avx512bw")
    return tuple(sorted(needs & target.features))


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
    first, second = operand_names(problem)
    how = method(schedule, tuned.accuracy if tuned else None)
    shown = {"A": first, "B": second, "C": "out", "bias": "bias"}
    shapes, dtypes = problem.operand_shapes, _types(problem)
    operands = [f"{shown[name]:<8} {dtypes[name]}{list(shape)}" for name, shape in shapes.items()]
    sections = {
        "Problem": str(problem),
        "Computes": "\n".join(filter(None, [formula(problem), how])),
        "Operands, contiguous NumPy arrays": "\n".join(operands),
        "Call": f"from MODULE import {problem.op}\n{call_text(problem, planned)}",
        f"Schedule {schedule.hash}, outermost first": str(schedule),
        "Loop nest": "\n".join(printed(planned.nest)),
        "Tuned for": f"{target.canonical}; needs {', '.join(needs) or 'no extension'}"
        + _speed(tuned, target.threads),
    }
    text = "\n\n".join(f"{title}:\n{indent(body, '    ')}" for title, body in sections.items())
    hint = "The first call compiles, for a second or two. Run the file to check and time it."
    return f"{problem.op.capitalize()}, a kernel tuned by Tilewise.\n\n{text}\n\n{hint}\n"


def _speed(tuned: Tuned | None, threads: int) -> str:
    if tuned is None:
        return ""
    where = "on one core" if threads == 1 else f"on {threads} threads"
    return (
        f"\n{tuned.gflops:.1f} GFLOP/s {where}, {tuned.peak_fraction:.1%} of the peak,"
        f"\nmeasured with {tuned.toolchain}"
    )


def _check_text(problem: Problem, planned: Plan) -> str:
    """The self-check; floats may be off by what rounding a sum of this length allows."""
    element = problem.element
    bound = error_bound(problem.depth + 2, element.accumulator) if element.is_float else 0.0
    transforms = planned.nest.algorithm is not None
    bound *= MOST_TIMES if transforms else 1.0
    return check_text(problem, bound, problem.accumulates, planned.is_ahead, transforms)
