"""The micro-kernel's inner loop as machine code, with counts and the bound that they imply.

The loop is found in the text that LLVM prints for this machine: of the innermost loops, the one
with the most multiply-adds. Its counts say what a core has to start in an iteration; what a core
can start in a cycle is declared in `tilewise.kernels.target.cores`. The bound is on the loop alone,
with everything in the first-level cache. x86 is in AT&T order: the destination is the last operand.
"""

import functools
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import llvmlite.binding as llvm
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.instructions import Form, Instruction
from tilewise.kernels.native.jit.ir_text import kernel_text
from tilewise.kernels.native.microkernels.matrix_tiles_code import TILE
from tilewise.kernels.native.microkernels.microkernel import KernelSpec, MicroKernel
from tilewise.kernels.native.plan import plan
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import resolve
from tilewise.kernels.target.cores import Core, core_of
from tilewise.kernels.target.model import Target

REGISTER_BYTES = {"x": 16, "y": 32, "z": 64}

_VECTOR = re.compile(r"%([xyz])mm\d+")
_SPLIT = re.compile(r",\s*(?![^(]*\))")
_ADD = re.compile(r"v?addp[sdh]|v?padd[dwq]")
_NO_ACCESS = ("lea", "nop", "prefetch")
_ONLY_READS = ("cmp", "test", "vucomis", "ucomis", "bt")

_FUNCTION = re.compile(r"^_?tilewise_kernel_full_\w+:")
_LABEL = re.compile(r"^(\.?L\w+):")
_JUMP = re.compile(r"^\s+(?:j\w+|b\.?\w*|cbn?z|tbn?z)\s.*?(\.?L\w+)\s*$")
_INLINE = re.compile(r"^\s+\S{1,2}(?:NO_)?APP$")  # around inline assembly, of which all is empty
_FRAME_POINTER = re.compile(r"^\s+movq\s+%rsp, %rbp")
_LABELS = {"multiply_adds": "multiply-adds, fma"}
_UNITS = {
    "multiply-adds": "the multiply-add units bind",
    "loads": "loads bind",
    "stores": "stores bind",
    "front end": "the front end binds",
}


@dataclass(frozen=True)
class AsmLine:
    """One instruction: its mnemonic and its operands as text."""

    name: str
    operands: tuple[str, ...]

    @property
    def memory(self) -> str | None:
        """The operand that is an address, whether or not it is accessed."""
        return next((o for o in self.operands if "(" in o), None)

    @property
    def vector_bytes(self) -> int:
        """Width of the widest vector register; 0 without one."""
        widths = [REGISTER_BYTES[w] for o in self.operands for w in _VECTOR.findall(o)]
        return max(widths, default=0)

    @property
    def writes_memory(self) -> bool:
        """Whether the destination is an address."""
        return (
            self.memory is not None
            and "(" in self.operands[-1]
            and not self.name.startswith((*_NO_ACCESS, *_ONLY_READS))
        )

    @property
    def reads_memory(self) -> bool:
        """Whether an operand comes from an address; only moves write one unread."""
        if self.memory is None or self.name.startswith(_NO_ACCESS):
            return False
        return not (self.writes_memory and re.match(r"v?p?(mov|set|extr)", self.name))

    @property
    def is_broadcast(self) -> bool:
        """Whether it puts one element in every lane, alone or folded into arithmetic."""
        return "broadcast" in self.name or "{1to" in self.operands[0]


@dataclass(frozen=True)
class InstructionCounts:
    """What one iteration of a loop is made of.

    Attributes:
        multiply_adds: vector multiply-adds; a multiplication with its addition is one.
        vector_loads: whole vectors from memory, folded into arithmetic or not.
        broadcasts: one element to every lane.
        other_loads: scalars from memory, and prefetches, which take the same units.
        stores: writes to memory.
        stack_references: accesses to the stack.
        vector_spills: those of them that move vectors.
        instructions: all, with the jump.
        vector_bytes: width of a multiply-add.
        chain: multiply-adds of an iteration that wait for one another.
        tile_loads: loads of matrix tiles, each of 16 rows.
    """

    multiply_adds: int
    vector_loads: int
    broadcasts: int
    other_loads: int
    stores: int
    stack_references: int
    vector_spills: int
    instructions: int
    vector_bytes: int
    chain: int
    tile_loads: int = 0


def parse(line: str) -> AsmLine | None:
    """Return an instruction of LLVM's assembly; None for labels, directives and comments."""
    text = re.split(r"\s#|//|^#|\s;", line.strip())[0].removeprefix("{vex}").strip()
    if not text or text.startswith(".") or text.endswith(":"):
        return None
    name, _, rest = text.partition("\t")
    if not rest:
        name, _, rest = text.partition(" ")
    return AsmLine(name, tuple(_SPLIT.split(rest.strip())) if rest.strip() else ())


def count_x86(
    loop: Sequence[AsmLine], one: Instruction, uses_frame_pointer: bool
) -> InstructionCounts:
    """Return the counts of a loop.

    Args:
        loop: its instructions.
        one: the instruction that multiplies.
        uses_frame_pointer: whether rbp points into the stack; else it is one register of many.
    """
    stack = re.compile(r"\(%r(sp|bp)\b" if uses_frame_pointer else r"\(%rsp\b")
    accessing = [i for i in loop if i.reads_memory or i.writes_memory]
    reads = [i for i in accessing if i.reads_memory]
    spills = [i for i in accessing if stack.search(i.memory or "")]
    multiply_adds = [i for i in loop if one.is_printed_as(i.name)]
    vector_loads = [i for i in reads if i.vector_bytes and not i.is_broadcast]
    tile_loads = [i for i in reads if i.name.startswith("tileload")]
    prefetches = sum(i.name.startswith("prefetch") for i in loop)
    # LLVM may have merged the additions of products.
    sums = [i for i in loop if _ADD.fullmatch(i.name) and not one.adds] or multiply_adds
    return InstructionCounts(
        multiply_adds=len(multiply_adds),
        vector_loads=len(vector_loads),
        broadcasts=sum(i.is_broadcast for i in loop if i.operands),
        other_loads=sum(not i.vector_bytes for i in reads) - len(tile_loads) + prefetches,
        stores=sum(i.writes_memory for i in accessing),
        stack_references=len(spills),
        # A tile's sums pass through an image on the stack, to vectors and back.
        vector_spills=0 if tile_loads else sum(i.vector_bytes > 0 for i in spills),
        instructions=len(loop),
        vector_bytes=max((i.vector_bytes for i in multiply_adds), default=0),
        chain=max(Counter(i.operands[-1] for i in sums).values(), default=0),
        tile_loads=len(tile_loads),
    )


def count_other(loop: Sequence[AsmLine], one: Instruction) -> InstructionCounts:
    """Return the counts of a loop in AArch64 assembly, as far as they are known; others are 0."""
    texts = [", ".join(i.operands) for i in loop]
    loads = [i for i in loop if re.match(r"ld(r|p|ur|1)\b", i.name)]
    stack = [t for t in texts if re.search(r"\[(sp|x29)\b", t)]
    return InstructionCounts(
        multiply_adds=sum(one.is_printed_as(i.name) for i in loop),
        vector_loads=sum(bool(re.match(r"[qv{]", i.operands[0])) for i in loads),
        broadcasts=sum(i.name in ("dup", "ld1r") for i in loop),
        other_loads=sum(not re.match(r"[qv{]", i.operands[0]) for i in loads),
        stores=sum(bool(re.match(r"st(r|p|ur|1)", i.name)) for i in loop),
        stack_references=len(stack),
        vector_spills=sum(bool(re.match(r"[qv{]", t)) for t in stack),
        instructions=len(loop),
        vector_bytes=16,
        chain=0,
    )


# The bound


@dataclass(frozen=True)
class CycleBound:
    """The least cycles of an iteration, by resource, and what follows.

    Attributes:
        cycles: by resource.
        binds: the resource that takes most.
        peak_share: the largest share of the multiply-add peak that the loop can reach.
        latency: cycles that an accumulator's sums wait for one another. Not a part of the
            bound: the end of one call overlaps with the start of the next.
        core: what the core is taken for.
        declared: whether the processor is in the table of cores.
    """

    cycles: dict[str, float]
    binds: str
    peak_share: float
    latency: float
    core: Core
    declared: bool


def bound(
    counts: InstructionCounts, spec: KernelSpec, cpu: str, features: Collection[str] = ()
) -> CycleBound:
    """Return the least cycles that an iteration can take on a core."""
    core, declared = core_of(cpu, features)
    width, one = counts.vector_bytes, spec.how.instruction
    slots, is_product = one.slots_on(core) // len(one.parts), one.b == "i32"
    operations = slots if is_product else 1
    multiply = counts.multiply_adds * slots * max(1.0, width / core.multiply_add_bytes)
    wide = max(1.0, width / core.load_bytes)
    spilled_stores = max(1.0, width / core.store_bytes)
    # A comparison and its jump are delivered as one.
    delivered = counts.instructions - 1 + counts.multiply_adds * (operations - 1)
    waits = 0 if counts.vector_spills else counts.chain * (1 if is_product else core.latency)
    loads = counts.vector_loads * wide + counts.broadcasts + counts.other_loads
    cycles = {
        "multiply-adds": multiply / core.multiply_adds,
        "loads": (loads + counts.tile_loads * TILE) / core.loads,
        "stores": counts.stores * spilled_stores / core.stores,
        "front end": delivered / core.width,
    }
    binds = max(cycles, key=lambda name: cycles[name])
    share = cycles["multiply-adds"] / cycles[binds] * _share_of_fastest(one, core)
    return CycleBound(cycles, binds, share, float(waits), core, declared)


def _share_of_fastest(one: Instruction, core: Core) -> float:
    """The rate of an instruction over that of the fastest for its type, of both it and widening."""
    if one.c == "i32" or Form.TILES in one.forms:  # products of single i32 are slower
        return 1.0
    return min(1.0, one.k / one.slots_on(core))


# The loop


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
    counts: InstructionCounts
    bound: CycleBound | None
    cpu: str

    def to_json(self) -> dict[str, Any]:
        """Return the three numbers that say most, then all of it as plain values."""
        counts = self.counts
        return {
            "fma": counts.multiply_adds,
            "loads": counts.vector_loads + counts.broadcasts + counts.other_loads,
            "stack_references": counts.stack_references,
            "spills": counts.vector_spills > 0,
            **asdict(self),
        }


def inner_loop(problem: Problem, schedule: Schedule, target: Target) -> InnerLoop:
    """Compile the micro-kernel of a schedule for this machine and return its hottest loop.

    Raises:
        UnsupportedError: no lowering covers the problem.
        ScheduleError: the schedule cannot be applied to the problem.
        LoweringError: it needs what the target lacks, or has no loop with multiply-adds.
    """
    kernel = plan(problem, schedule, target).kernel
    is_x86 = llvm.get_process_triple().startswith(("x86_64", "i686"))
    return hottest_loop(assembly(kernel), kernel.spec, target.cpu, is_x86, target.features)


def inspect_result(found: dict[str, Any]) -> InnerLoop:
    """Return the inner loop of a stored result, as `tilewise show --json` gives it.

    Raises:
        TargetError: it was tuned for another machine.
        KernelsError: as `inner_loop`, when another toolchain knew what this one does not.
    """
    schedule = Schedule.from_json(found["best"]["steps"])
    return inner_loop(parse_problem(found["problem"]), schedule, resolve(found["target"]))


@functools.lru_cache(maxsize=32)
def assembly(kernel: MicroKernel) -> str:
    """Return the machine code of a micro-kernel and its packs, as the exported kernel has it.

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


def hottest_loop(
    text: str, spec: KernelSpec, cpu: str, is_x86: bool, features: Collection[str] = ()
) -> InnerLoop:
    """Return the innermost loop of the full micro-kernel with the most multiply-adds."""
    lines = _body(text)
    has_frame, one = any(map(_FRAME_POINTER.match, lines)), spec.how.instruction
    best: tuple[InstructionCounts, list[str]] | None = None
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
        bound=bound(counts, spec, cpu, features) if is_x86 else None,
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
    """Return the loop, a table of its counts, the bound, and a line on spills."""
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
    """What binds the loop, and what the core is taken for, in lines."""
    limit, cpu = found.bound, found.cpu
    if limit is None:
        return f"bound: unknown, {cpu} is not x86; some counts may be missing"
    cycles = ", ".join(f"{name} {value:.1f}" for name, value in limit.cycles.items() if value)
    core = limit.core
    if limit.latency > limit.cycles[limit.binds]:
        cycles += (
            f"\nlatency: sums wait {limit.latency:.1f} cycles an iteration for one another, "
            "unless calls overlap; more accumulators would hide it"
        )
    known = "" if limit.declared else " (not in the table of cores: a conservative one is taken)"
    return (
        f"cycles an iteration: {cycles}\n"
        f"bound: at most {limit.peak_share:.1%} of the multiply-add peak; {_UNITS[limit.binds]}\n"
        f"core: {cpu}{known}: {core.multiply_adds} multiply-adds of "
        f"{core.multiply_add_bytes} bytes, {core.loads} loads of {core.load_bytes} bytes, "
        f"{core.width} instructions a cycle"
    )


def _spill_text(counts: InstructionCounts) -> str:
    if counts.vector_spills:
        return (
            f"spills: accumulators spill, {counts.vector_spills} vector accesses to the stack "
            "an iteration; take a smaller register tile"
        )
    if counts.stack_references:
        return f"spills: no vector; {counts.stack_references} accesses to addresses on the stack"
    return "spills: none, every accumulator stays in its register"
