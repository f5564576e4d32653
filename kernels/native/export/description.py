"""A kernel's formula, speed and operand names, for its users."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any

from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.native.macrokernel.parameters import EXTRAS, Addresses
from tilewise.kernels.native.plan import KernelPlan
from tilewise.kernels.problem import Convolution, Matmul, Problem
from tilewise.kernels.problem.keys import BF16X3
from tilewise.kernels.schedule import Schedule


@dataclass(frozen=True)
class Tuned:
    """The known speed and rounding of a tuned schedule.

    `accuracy` has rms errors relative to the direct method, by kind of operands; empty if direct.
    """

    gflops: float
    peak_fraction: float
    toolchain: str
    accuracy: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> "Tuned | None":
        """Return that of a stored result, as `tilewise show --json` prints it.

        None for a size of a range, whose share of the peak was not measured.
        """
        best = found["best"]
        if best["peak_fraction"] is None:
            return None
        accuracy = (best.get("measured") or {}).get("accuracy") or {}
        return cls(best["gflops"], best["peak_fraction"], found["toolchain"], accuracy)


def operand_names(problem: Problem) -> dict[str, str]:
    """Return what functions call the operands of a problem."""
    a, b = ("image", "weights") if problem.spatial_axes else ("a", "b")
    return {"A": a, "B": b, "C": "out", **{name: name for name in problem.extras}}


def macro_kernel_addresses(
    planned: KernelPlan, given: Mapping[str, str], *, a_panels: str, b_panels: str, c_sums: str
) -> Addresses[str]:
    """Return the arguments of a macro-kernel, from expressions for addresses.

    `given` has those of operands (panels, if B is packed ahead), the others those of scratch.
    """
    a, b = (given[planned.nest.operand(role).name] for role in ("A", "B"))
    return Addresses(
        a=a,
        b="0" if planned.is_ahead else b,
        c=given["C"],
        **{name: given.get(name, "0") for name in EXTRAS},
        a_panels=a_panels,
        b_panels=given["B"] if planned.is_ahead else b_panels,
        c_sums=c_sums,
    )


def formula(problem: Problem) -> str:
    """Return the result in one line, with the sum and all that is added to it."""
    result, terms, bias, where = _sum(problem)
    if problem.has_bias:
        terms += f" + {bias}"
    if problem.accumulates:
        terms = f"{result} + {terms}"
    if problem.add:
        terms += f" + {result.replace('out', 'add')}"
    if problem.has_relu:
        terms = f"max(0, {terms})"
    if problem.ceiling is not None:
        terms = f"min({problem.ceiling}, {terms})"
    if problem.function.is_smooth:
        terms = f"{problem.epilogue}({terms})"
    if problem.requant:
        terms = f"round({terms} * scale_c{'[j]' if problem.requant == 'channel' else ''}) + zero_c"
        where = ", ".join(filter(None, [where, f"within the limits of {problem.out}"]))
    elif problem.out:
        where = ", ".join(filter(None, [where, f"rounded to {problem.out}, to nearest even"]))
    if not problem.element.is_float:
        where = ", ".join(filter(None, [where, "modulo 2**32"]))
    return f"{result} = {terms}" + (f"\n{where}" if where else "")


@singledispatch
def _sum(problem: Problem) -> tuple[str, str, str, str]:
    """Return the result, the sum, the bias, and remarks; one function per operation."""
    raise UnsupportedError(f"op={problem.op} has no formula; give a matmul or a convolution", "op")


@_sum.register
def _of_matmul(problem: Matmul) -> tuple[str, str, str, str]:
    left = _less(problem, "a", "a[k, i]" if problem.transpose_a else "a[i, k]")
    right = _less(problem, "b", "b[j, k]" if problem.transpose_b else "b[k, j]")
    if weights := problem.quantised_weights:
        at = f"k // {weights.group}"
        group = f"[j, {at}]" if problem.transpose_b else f"[{at}, j]"
        right = f"({right} - zero_b{group})" if weights.zero else right
        right += f" * scale_b{group}"
    where = f"for each of {problem.batch} along the first axis" if problem.batch > 1 else ""
    return "out[i, j]", f"sum over k of {left} * {right}", "bias[j]", where


@_sum.register
def _of_convolution(problem: Convolution) -> tuple[str, str, str, str]:
    outs, taps = (names[-len(problem.axes) :] for names in ("zyx", "hij"))
    pairs = zip(outs, taps, strict=True)
    pixel = ", ".join(f"{out}*stride + {tap}*dilation - pad" for out, tap in pairs)
    out, tap = ", ".join(outs), ", ".join(taps)
    if problem.has_channels_first:
        image, weights, result = (
            f"image[n, c, {pixel}]",
            f"weights[f, c, {tap}]",
            f"out[n, f, {out}]",
        )
    else:
        image, weights, result = (
            f"image[n, {pixel}, c]",
            f"weights[{tap}, c, f]",
            f"out[n, {out}, f]",
        )
    image, weights = _less(problem, "a", image), _less(problem, "b", weights)
    zero = "zero_a" if "a" in problem.zero else "zeros"
    where = (
        f"stride={problem.stride}, dilation={problem.dilation}, pad={problem.pad} ({zero}), "
        f"groups={problem.groups}, layout {problem.layout}"
    )
    return result, f"sum over {tap}, c of\n    {image}\n    * {weights}", "bias[f]", where


def _less(problem: Problem, factor: str, element: str) -> str:
    """Return an element of a factor, less its zero point."""
    return f"({element} - zero_{factor})" if factor in problem.zero else element


def method(schedule: Schedule, tuned: Tuned | None) -> str:
    """Return how a kernel of a fast algorithm differs from the formula; empty for a direct one."""
    if schedule.algorithm is not None:
        lines = [
            f"by fewer products (step {schedule.algorithm.name}): it rounds otherwise than the",
            "formula does, and a NaN, an infinity or an overflow spreads to neighbouring elements",
        ]
    elif any(str(getattr(step, "op", "")).endswith(BF16X3) for step in schedule.steps):
        lines = ["by three products of bf16 (accuracy=bf16x3): factors are 2**-16 off"]
    else:
        return ""
    if accuracy := tuned.accuracy if tuned else {}:
        kind = max(accuracy, key=lambda name: accuracy[name])
        lines.append(
            f"rms error up to {accuracy[kind]:.2f} times that of the formula ({kind} operands)"
        )
    return "\n".join(lines)
