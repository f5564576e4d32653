"""The C header of an object: C99 and C++, for one kernel, beside any number of others."""

from textwrap import indent

from tilewise.kernels.native.export.formula import formula, method
from tilewise.kernels.native.export.module import Tuned
from tilewise.kernels.native.ir.vectors import LINE_BYTES
from tilewise.kernels.native.objects.interface import (
    MISALIGNED,
    NO_SUCH_PART,
    NULL,
    OK,
    Argument,
    Interface,
)
from tilewise.kernels.native.objects.templates import filled
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target.model import Target

_BITS = {
    "bf16": "uint16_t holds the bits of a bfloat16",
    "f16": "uint16_t holds the bits of a half",
}


def header_text(
    problem: Problem,
    schedule: Schedule,
    target: Target,
    interface: Interface,
    features: tuple[str, ...],
    tuned: Tuned | None,
) -> str:
    """The header.

    Args:
        problem: what the kernel computes.
        schedule: how.
        target: for which processor.
        interface: its functions.
        features: what they need of the processor.
        tuned: the speed where it was tuned, if it is known.
    """
    name = interface.name
    prepare = ""
    if interface.weights:
        weights = _declared(interface.weights)
        prepare = filled("prepare.h", name=name, weights=weights, line=str(LINE_BYTES))
    return filled(
        "header.h",
        alias=interface.alias,
        name=name,
        about=indent(_about(problem, schedule, target, interface, features, tuned), "   "),
        written=", `scratch` and `packed`" if interface.weights else " and `scratch`",
        ok=str(OK),
        null=str(NULL),
        misaligned=str(MISALIGNED),
        no_such_part=str(NO_SUCH_PART),
        sizes=_sizes(interface),
        prepare=prepare,
        adds=", adding to what it holds" if problem.accumulates else "",
        arguments=",\n    ".join(["", *map(_declared, interface.arguments)]).lstrip(","),
        aliases=_aliases(interface),
    )


def _about(
    problem: Problem,
    schedule: Schedule,
    target: Target,
    interface: Interface,
    features: tuple[str, ...],
    tuned: Tuned | None,
) -> str:
    how = method(schedule, tuned.accuracy if tuned else None)
    lines = [
        f"problem   {problem}",
        f"computes  {_hanging(formula(problem))}",
        *([f"{'':10}{_hanging(how)}"] if how else []),
        f"schedule  {schedule.hash}, outermost step first:",
        indent(str(schedule), " " * 10),
        f"tuned for {target.canonical}{_speed(tuned)}",
        f"needs     {_wrapped(features)}",
        "",
        *_operand_lines(problem, interface),
    ]
    return "\n".join(line.rstrip() for line in "\n".join(lines).splitlines())


def _operand_lines(problem: Problem, interface: Interface) -> list[str]:
    """Shapes and alignments, and what a 16-bit type holds."""
    shapes = problem.operand_shapes
    arguments = list(interface.arguments)
    if interface.weights:
        arguments.insert(1, interface.weights)
    lines = ["Arrays are contiguous, the last index the fastest. Addresses are multiples of:"]
    for one in arguments:
        shape = "".join(f"[{extent}]" for extent in shapes[one.operand]) if one.operand else ""
        what = f"{one.type} {one.name}{shape}"
        if one.type == "void":
            what = f"{one.name}, {_size_macro(one)} bytes"
        lines.append(f"  {one.alignment:<3} {what}")
    if problem.element.name in _BITS:
        lines.append(f"{_BITS[problem.element.name]}.")
    if not interface.scratch_bytes:
        lines.append("scratch is not used, and may be null.")
    return lines


def _size_macro(one: Argument) -> str:
    return "SCRATCH_BYTES" if one.name == "scratch" else "PACKED_BYTES"


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


def _declared(one: Argument) -> str:
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
