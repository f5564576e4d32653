"""The micro-kernel's inner loop as machine code, with counts and the bound that they imply.

The loop is found in the text that LLVM prints for this machine: of the loops that hold
no other, the one with the most multiply-adds. Its counts say what a core has to start
for each iteration; what a core can start in a cycle is declared in `tilewise.kernels.target.cores`.
The bound is on the loop alone, with everything in the first-level cache.
"""

import functools
import re
from dataclasses import asdict, dataclass
from typing import Any

import llvmlite.binding as llvm
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.assembly.bound import Bound, bound, bound_text
from tilewise.kernels.native.assembly.instructions import Counts, count_other, count_x86, parse
from tilewise.kernels.native.jit.ir_text import kernel_text
from tilewise.kernels.native.microkernels.microkernel import KernelSpec, MicroKernel
from tilewise.kernels.native.plan import plan
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import resolve
from tilewise.kernels.target.model import Target

_FUNCTION = re.compile(r"^_?tilewise_kernel_full_\w+:")
_LABEL = re.compile(r"^(\.?L\w+):")
_JUMP = re.compile(r"^\s+(?:j\w+|b\.?\w*|cbn?z|tbn?z)\s.*?(\.?L\w+)\s*$")
_INLINE = re.compile(r"^\s+\S{1,2}(?:NO_)?APP$")  # around inline assembly, of which all is empty
_FRAME_POINTER = re.compile(r"^\s+movq\s+%rsp, %rbp")
_LABELS = {"multiply_adds": "multiply-adds, fma"}


@dataclass(frozen=True)
class InnerLoop:
    """The hottest loop of a micro-kernel.

    Attributes:
        text: its assembly, from the label to the jump.
        steps: steps of the reduction in an iteration.
        counts: what an iteration is made of.
        bound: what a core makes of that; None where counts alone are known.
        cpu: LLVM's name of the processor.
    """

    text: str
    steps: int
    counts: Counts
    bound: Bound | None
    cpu: str

    def to_json(self) -> dict[str, Any]:
        """The three numbers that say most, then all of it as plain values."""
        counts = self.counts
        return {
            "fma": counts.multiply_adds,
            "loads": counts.vector_loads + counts.broadcasts + counts.other_loads,
            "stack_references": counts.stack_references,
            "spills": counts.vector_spills > 0,
            **asdict(self),
        }


def inner_loop(problem: Problem, schedule: Schedule, target: Target) -> InnerLoop:
    """Compile the micro-kernel of a schedule for this machine and take its hottest loop.

    Raises:
        UnsupportedError: no lowering covers the problem.
        ScheduleError: the schedule cannot be applied to the problem.
        LoweringError: it asks for what the target has not, or has no loop with multiply-adds.
    """
    kernel = plan(problem, schedule, target).kernel
    is_x86 = llvm.get_process_triple().startswith(("x86_64", "i686"))
    return hottest_loop(assembly(kernel), kernel.spec, target.cpu, is_x86)


def inspect_result(found: dict[str, Any]) -> InnerLoop:
    """The inner loop of a stored result, as `tilewise show --json` gives it.

    Raises:
        TargetError: it was tuned for another machine.
        KernelsError: as `inner_loop`, when another toolchain knew what this one does not.
    """
    schedule = Schedule.from_json(found["best"]["steps"])
    return inner_loop(parse_problem(found["problem"]), schedule, resolve(found["target"]))


@functools.lru_cache(maxsize=32)
def assembly(kernel: MicroKernel) -> str:
    """The machine code of a micro-kernel and its packs, as the exported kernel has it.

    Raises:
        LoweringError: code generation failed.
    """
    try:
        module = llvm.parse_assembly(kernel_text(kernel).text)
        module.triple = llvm.get_process_triple()
        with global_compiler_lock:
            library = cpu_target.target_context.codegen().create_library("tilewise_assembly")
            library.add_llvm_module(module)
            library.finalize()
        return str(library.get_asm_str())
    except Exception as error:
        raise LoweringError(f"compiling {kernel.spec} failed: {error}") from error


def hottest_loop(text: str, spec: KernelSpec, cpu: str, is_x86: bool) -> InnerLoop:
    """The innermost loop of the full micro-kernel with the most multiply-adds."""
    lines = _body(text)
    has_frame, one = any(map(_FRAME_POINTER.match, lines)), spec.how.instruction
    best: tuple[Counts, list[str]] | None = None
    for loop in _innermost(lines):
        parsed = [i for i in map(parse, loop) if i is not None]
        counts = count_x86(parsed, one, has_frame) if is_x86 else count_other(parsed, one)
        if best is None or counts.multiply_adds > best[0].multiply_adds:
            best = counts, loop
    if best is None or not best[0].multiply_adds:
        raise LoweringError(f"the assembly of {spec} has no loop with multiply-adds")
    counts, loop = best
    return InnerLoop(
        text="\n".join(loop) + "\n",
        steps=max(1, spec.steps(counts.multiply_adds)),
        counts=counts,
        bound=bound(counts, spec, cpu) if is_x86 else None,
        cpu=cpu,
    )


def _body(text: str) -> list[str]:
    """The lines of the full micro-kernel."""
    lines = [line for line in text.splitlines() if not _INLINE.match(line)]
    start = next(i for i, line in enumerate(lines) if _FUNCTION.match(line))
    ends = (i for i in range(start, len(lines)) if re.match(r"^\.?Lfunc_end", lines[i]))
    return lines[start : next(ends, len(lines))]


def _innermost(lines: list[str]) -> list[list[str]]:
    """The loops that hold no other: from a label to the first jump back to it."""
    found: list[tuple[int, int]] = []
    labels: dict[str, int] = {}
    for index, line in enumerate(lines):
        label, jump = _LABEL.match(line), _JUMP.match(line)
        if label:
            labels[label[1]] = index
        elif jump and jump[1] in labels:
            start = labels[jump[1]]
            if not any(start <= inner for inner, _ in found):
                found.append((start, index))
    return [lines[start : end + 1] for start, end in found]


def render(found: InnerLoop) -> str:
    """The loop, a table of its counts, the bound, and a line on spills."""
    counts, steps = asdict(found.counts), found.steps
    for name in ("vector_bytes", "chain", "vector_spills"):
        counts.pop(name)
    title = f"inner loop, {steps} step{'s' if steps > 1 else ''} of the reduction an iteration:"
    lines = [title, "", found.text, f"{'counts':<20}{'iteration':>10}{'step':>8}"]
    for name, value in counts.items():
        label = _LABELS.get(name, name.replace("_", " "))
        lines.append(f"{label:<20}{value:>10}{value / steps:>8.3g}")
    lines += ["", _bound_text(found), _spill_text(found.counts)]
    return "\n".join(lines) + "\n"


def _bound_text(found: InnerLoop) -> str:
    if found.bound is None:
        return f"bound: unknown, {found.cpu} is not x86; some counts may be missing"
    return bound_text(found.bound, found.cpu)


def _spill_text(counts: Counts) -> str:
    if counts.vector_spills:
        return (
            f"spills: accumulators spill, {counts.vector_spills} vector accesses to the stack "
            "an iteration; take a smaller register tile"
        )
    if counts.stack_references:
        return f"spills: no vector; {counts.stack_references} accesses to addresses on the stack"
    return "spills: none, every accumulator stays in its register"
