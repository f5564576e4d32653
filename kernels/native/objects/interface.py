"""What C sees of an object: names, arguments, sizes, return codes, and the header that has them.

The header is C99 and C++, for one kernel, next to any number of others.
"""

from dataclasses import dataclass
from math import prod
from textwrap import indent

from tilewise.kernels.native.export.description import Tuned, formula, method, operand_names
from tilewise.kernels.native.export.templates import filled
from tilewise.kernels.native.ir.vectors import LINE_BYTES
from tilewise.kernels.native.microkernels.skinny_products import SkinnyGemmSpec
from tilewise.kernels.native.objects.features import TEMPLATES
from tilewise.kernels.native.plan import KernelPlan
from tilewise.kernels.oracle.operands import operand_type
from tilewise.kernels.problem import STORED, Problem, stem
from tilewise.kernels.problem.weights import QuantisedWeights
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target.model import Target

PREFIX = "tilewise_"
OK, NULL, MISALIGNED, NO_SUCH_PART = 0, 1, 2, 3
"""What the functions return."""

C_TYPES = {"f32": "float", "f64": "double", "i32": "int32_t", "i8": "int8_t", "u8": "uint8_t",
           "bf16": "uint16_t", "f16": "uint16_t", "i4": "int8_t", "u4": "uint8_t"}  # fmt: skip
_BITS = {
    "bf16": "uint16_t holds the bits of a bfloat16",
    "f16": "uint16_t holds the bits of a half",
}


@dataclass(frozen=True)
class Pointer:
    """A pointer that a function takes.

    Attributes:
        name: in C.
        operand: one of the problem; empty for memory.
        type: C's, of what it points to.
        alignment: of the address, in bytes.
        is_const: whether it is only read.
    """

    name: str
    operand: str
    type: str
    alignment: int
    is_const: bool = True


@dataclass(frozen=True)
class Interface:
    """The C interface of a kernel.

    Attributes:
        name: of its function, with the processor and the schedule's hash.
        alias: the same without them, for programs that are compiled against another schedule.
        arguments: of the function, in their order; the memory for panels is the last.
        weights: what `prepare` takes, where the weights are constant: B, and its scales.
        packed_bytes: of the weights that `prepare` writes, in whole lines; 0 where there are none.
        weight_bytes: of the weights as they are.
        scratch_bytes: of the memory for panels and sums, of all parts.
        scratch_of_a, scratch_of_c: those of panels of A, and of sums behind them; panels of B are
            the last.
        parts: into which the work is cut.
    """

    name: str
    alias: str
    arguments: tuple[Pointer, ...]
    weights: tuple[Pointer, ...]
    packed_bytes: int
    weight_bytes: int
    scratch_bytes: int
    scratch_of_a: int
    scratch_of_c: int
    parts: int

    @property
    def short_name(self) -> str:
        """The name as the language of drivers has it, which puts the prefix in front."""
        return self.name.removeprefix(PREFIX)

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of all that C calls."""
        endings = ("", "_part", "_supported", *(("_prepare",) if self.weights else ()))
        return tuple(f"{self.name}{ending}" for ending in endings)

    @classmethod
    def of(
        cls, problem: Problem, schedule: Schedule, target: Target, planned: KernelPlan
    ) -> "Interface":
        """Return that of a planned kernel."""
        alias = problem_name(problem)
        processor = "".join(c if c.isalnum() else "_" for c in target.cpu)
        a, b, c = (scratch_of(planned, role) for role in ("A", "B", "C"))
        return cls(
            name=f"{alias}_{processor}_{schedule.hash}",
            alias=alias,
            arguments=_arguments(problem),
            weights=tuple(_operand(problem, name) for name in problem.constants),
            packed_bytes=_packed_bytes(problem, planned),
            weight_bytes=sum(_bytes_of(problem, name) for name in problem.constants or ("B",)),
            scratch_bytes=a + c + (0 if planned.is_ahead else b),
            scratch_of_a=a,
            scratch_of_c=c,
            parts=len(planned.nest.parts),
        )


def problem_name(problem: Problem) -> str:
    """Return a name such as `tilewise_matmul_m64_n48_k32_f32`."""
    return PREFIX + "".join(c if c.isalnum() else "_" for c in stem(problem))


def scratch_of(planned: KernelPlan, role: str) -> int:
    """Return the bytes of panels of A or B for all parts, in whole lines; 0 for one read in place.

    Sums of a skinny GEMM that are in panels have the place of A's. For C return those of sums that
    are rounded to it.
    """
    if role == "C":
        return _in_lines(planned.scratch[role].total)
    spec = planned.spec
    has_sums = role == "A" and isinstance(spec, SkinnyGemmSpec) and spec.shares_words
    is_used = has_sums or planned.nest.stage(role)
    return _in_lines(planned.scratch[role].total) if is_used else 0


def _arguments(problem: Problem) -> tuple[Pointer, ...]:
    second = _operand(problem, "B")
    if problem.has_constant_weights:
        second = Pointer("packed", "B", "void", LINE_BYTES)
    others = (name for name in problem.extras if name not in problem.constants)
    more = (_operand(problem, name) for name in others)
    scratch = Pointer("scratch", "", "void", LINE_BYTES, is_const=False)
    return (_operand(problem, "A"), second, *more, _operand(problem, "C"), scratch)


def _operand(problem: Problem, operand: str) -> Pointer:
    name, dtype = operand_names(problem)[operand], operand_type(problem, operand)
    return Pointer(name, operand, C_TYPES[dtype], STORED[dtype].bytes, is_const=operand != "C")


def _packed_bytes(problem: Problem, planned: KernelPlan) -> int:
    """Of the panels that are made ahead, or of a copy of weights that are read in place."""
    if not problem.has_constant_weights:
        return 0
    size = planned.scratch["B"].total if planned.is_ahead else _bytes_of(problem, "B")
    return _in_lines(size)


def _bytes_of(problem: Problem, operand: str) -> int:
    return prod(problem.operand_shapes[operand]) * STORED[operand_type(problem, operand)].bytes


def _in_lines(size: int) -> int:
    return -(-size // LINE_BYTES) * LINE_BYTES


def header_text(
    problem: Problem,
    schedule: Schedule,
    target: Target,
    interface: Interface,
    features: tuple[str, ...],
    tuned: Tuned | None,
) -> str:
    """Return the C header of an object.

    Args:
        problem: what the kernel computes.
        schedule: how.
        target: for which processor.
        interface: its functions.
        features: what they need of the processor.
        tuned: the speed where it was tuned, if it is known.
    """
    how, name, prepare = method(schedule, tuned), interface.name, ""
    about = [
        f"problem   {problem}",
        f"computes  {_hanging(formula(problem))}",
        *([f"{'':10}{_hanging(how)}"] if how else []),
        f"schedule  {schedule.hash}, outermost step first:",
        indent(str(schedule), " " * 10),
        f"tuned for {target.canonical}{_speed(tuned)}",
        f"needs     {_wrapped(features)}",
        "",
        *_operand_lines(problem, interface),
        *_tile_lines(features),
    ]
    lines = [line.rstrip() for line in "\n".join(about).splitlines()]
    if interface.weights:
        weights = ",\n    ".join(map(_declared, interface.weights))
        prepare = filled(TEMPLATES / "prepare.h", name=name, weights=weights, line=LINE_BYTES)
    return filled(
        TEMPLATES / "header.h",
        alias=interface.alias,
        name=name,
        about=indent("\n".join(lines), "   "),
        written=", `scratch` and `packed`" if interface.weights else " and `scratch`",
        ok=OK,
        null=NULL,
        misaligned=MISALIGNED,
        no_such_part=NO_SUCH_PART,
        sizes=_sizes(interface),
        prepare=prepare,
        adds=", adding to what it holds" if problem.accumulates else "",
        arguments=",\n    ".join(["", *map(_declared, interface.arguments)]).lstrip(","),
        aliases=_aliases(interface),
    )


def _operand_lines(problem: Problem, interface: Interface) -> list[str]:
    """Shapes and alignments, and what a 16-bit type holds."""
    shapes = problem.operand_shapes
    arguments = list(interface.arguments)
    if interface.weights:
        arguments[1:1] = interface.weights
    lines = ["Arrays are contiguous, the last index the fastest. Addresses are multiples of:"]
    for one in arguments:
        shape = "".join(f"[{extent}]" for extent in shapes[one.operand]) if one.operand else ""
        what = f"{one.type} {one.name}{shape}"
        if one.type == "void":
            what = f"{one.name}, {one.name.upper()}_BYTES bytes"
        lines.append(f"  {one.alignment:<3} {what}")
    if problem.element.name in _BITS:
        lines.append(f"{_BITS[problem.element.name]}.")
    if weights := problem.quantised_weights:
        lines += _weight_lines(weights)
    if not interface.scratch_bytes:
        lines.append("scratch is not used, and may be null.")
    return lines


def _weight_lines(weights: QuantisedWeights) -> list[str]:
    """What arrays of quantised weights hold."""
    least, most = weights.least, weights.least + 2**weights.bits - 1
    lines = [f"Elements of b are from {least} to {most}, one in a byte."] * (weights.bits < 8)
    if weights.scale in _BITS:
        lines.append(f"In scale_b {_BITS[weights.scale]}.")
    return lines


def _tile_lines(features: tuple[str, ...]) -> list[str]:
    """What a process has to do before it may use tile registers."""
    if "amx-tile" not in features:
        return []
    return [
        "For Linux alone, which gives tile registers to a process that asks: call NAME_supported",
        "once in each process, before the other functions. Threads and forked children need not",
        "ask again. It returns 0 if a thread has an alternate signal stack that is too small.",
    ]


def _hanging(text: str) -> str:
    first, *others = text.splitlines()
    return "\n".join([first, *(f"{'':10}{line}" for line in others)])


def _wrapped(features: tuple[str, ...]) -> str:
    """The names of extensions, some to a line."""
    names = ["x86-64", *features]
    rows = [", ".join(names[i : i + 8]) for i in range(0, len(names), 8)]
    return f",\n{'':10}".join(rows)


def _speed(tuned: Tuned | None) -> str:
    if tuned is None:
        return ""
    return f"\n{'':10}{tuned.gflops:.1f} GFLOP/s there, {tuned.peak_fraction:.1%} of the peak"


def _declared(one: Pointer) -> str:
    return f"{'const ' if one.is_const else ''}{one.type} *{one.name}"


def _sizes(interface: Interface) -> str:
    numbers = {"SCRATCH_BYTES": f"{interface.scratch_bytes}UL"}  # a size_t here, also of `#if`
    if interface.weights:
        numbers["PACKED_BYTES"] = f"{interface.packed_bytes}UL"
    numbers["ALIGNMENT"] = f"{LINE_BYTES}  /* of those addresses, in bytes */"
    numbers["PARTS"] = str(interface.parts)
    return "\n".join(f"#define {interface.name}_{name} {value}" for name, value in numbers.items())


def _aliases(interface: Interface) -> str:
    endings = ["SCRATCH_BYTES", "ALIGNMENT", "PARTS"]
    endings += ["PACKED_BYTES"] if interface.weights else []
    names = [*interface.functions, *(f"{interface.name}_{ending}" for ending in endings)]
    return "\n".join(
        f"#define {interface.alias}{name.removeprefix(interface.name)} {name}" for name in names
    )
