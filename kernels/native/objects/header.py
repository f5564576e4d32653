"""The C header of an object: C99 and C++, for one kernel, next to any number of others."""

from textwrap import indent

from tilewise.kernels.native.export.description import Tuned, formula, method
from tilewise.kernels.native.export.templates import filled
from tilewise.kernels.native.ir.vectors import LINE_BYTES
from tilewise.kernels.native.objects.features import TEMPLATES
from tilewise.kernels.native.objects.interface import (
    MISALIGNED,
    NO_SUCH_PART,
    NO_SUCH_SIZE,
    NULL,
    OK,
    Interface,
    Pointer,
    SizeArgument,
)
from tilewise.kernels.problem import Problem, parse_problem, sizes_text
from tilewise.kernels.problem.weights import QuantisedWeights
from tilewise.kernels.range_schedule import RangeSchedule
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target.model import Target

_BITS = {
    "bf16": "uint16_t holds the bits of a bfloat16",
    "f16": "uint16_t holds the bits of a half",
}


def header_text(
    what: Schedule | RangeSchedule,
    problem: Problem,
    target: Target,
    interface: Interface,
    features: tuple[str, ...],
    tuned: Tuned | None = None,
) -> str:
    """Return the C header of an object.

    Args:
        what: the schedule, or those of a range of problems.
        problem: what the kernel computes; of a range, for its smallest size.
        target: for which processor.
        interface: its functions.
        features: what they need of the processor.
        tuned: the speed where it was tuned, if it is known.
    """
    name, prepare = interface.name, ""
    about = [
        *(_of_one(problem, what, tuned) if isinstance(what, Schedule) else _of_range(what)),
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
        no_such_size=_size_lines(interface.sizes),
        sizes=_sizes(interface),
        prepare=prepare,
        adds=", adding to what it holds" if problem.accumulates else "",
        arguments=",\n    ".join(["", *_declarations(interface)]).lstrip(","),
        aliases=_aliases(interface),
    )


def _of_one(problem: Problem, schedule: Schedule, tuned: Tuned | None) -> list[str]:
    """The problem, and its schedule."""
    how = method(schedule, tuned)
    return [
        f"problem   {problem}",
        f"computes  {_hanging(formula(problem))}",
        *([f"{'':10}{_hanging(how)}"] if how else []),
        f"schedule  {schedule.hash}, outermost step first:",
        indent(str(schedule), " " * 10),
    ]


def _of_range(what: RangeSchedule) -> list[str]:
    """The range, and the schedules of its sizes."""
    problems = what.problems
    about = [f"problems  {problems}", f"computes  {_hanging(formula(problems.smallest))}"]
    return about + variant_lines(what)


def variant_lines(what: RangeSchedule) -> list[str]:
    """Return the schedules of a range, each with the sizes that it serves."""
    problems, lines = what.problems, list[str]()
    for at, schedule in enumerate(what.variants):
        spans = [span for span in what.spans if span.variant == at]
        sizes = (sizes_text(problems.dims, one.first, one.last) for one in spans)
        about = "\n".join(filter(None, [method(schedule, None), str(schedule)]))
        lines += [f"for {'; '.join(sizes)}: {schedule.hash}", indent(about, " " * 10)]
    return lines


def _size_lines(sizes: tuple[SizeArgument, ...]) -> str:
    if not sizes:
        return ""
    names = " or ".join(size.name for size in sizes)
    return filled(TEMPLATES / "no_such_size.h", code=NO_SUCH_SIZE, size=names)


def _operand_lines(problem: Problem, interface: Interface) -> list[str]:
    """Shapes and alignments, and what a 16-bit type holds."""
    shapes = shapes_of(problem, interface.sizes)
    arguments = list(interface.arguments)
    if interface.weights:
        arguments[1:1] = interface.weights
    lines = ["Arrays are contiguous, the last index the fastest. Addresses are multiples of:"]
    for one in arguments:
        shape = "".join(f"[{extent}]" for extent in shapes.get(one.operand, ()))
        what = f"{one.type} {one.name}{shape}"
        if one.type == "void":
            what = f"{one.name}, {one.name.upper()}_BYTES bytes"
        lines.append(f"  {one.alignment:<3} {what}")
    if problem.element.name in _BITS:
        lines.append(f"{_BITS[problem.element.name]}.")
    if (out := problem.type_of("C")) != problem.element.name and out in _BITS:
        lines.append(f"In out, {_BITS[out]}.")
    if weights := problem.quantised_weights:
        lines += _weight_lines(weights)
    if not interface.scratch_bytes:
        lines.append("scratch is not used, and may be null.")
    return lines


def shapes_of(problem: Problem, sizes: tuple[SizeArgument, ...]) -> dict[str, tuple[str, ...]]:
    """Return the extents of operands in C, in which the sizes of a range have their names."""
    last = problem.to_json() | {size.name: size.last for size in sizes}
    shapes = parse_problem(last).operand_shapes
    written = {name: list(map(str, shape)) for name, shape in shapes.items()}
    for size in sizes:
        smaller = parse_problem({**last, size.name: size.first}).operand_shapes
        for name, shape in shapes.items():
            # A batch of one has no dim; it is the first of others.
            at_first = (*[0] * (len(shape) - len(smaller[name])), *smaller[name])
            for axis, extent in enumerate(shape):
                if extent != at_first[axis]:
                    written[name][axis] = _of_size(size, extent)
    return {name: tuple(extents) for name, extents in written.items()}


def _of_size(size: SizeArgument, at_last: int) -> str:
    """Return an extent that depends on the size, such as m, or k / 32 of groups."""
    by = -(-size.last // at_last)
    return size.name if by == 1 else f"({size.name} + {by - 1}) / {by}"


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


def _declarations(interface: Interface) -> list[str]:
    """The arguments of the function."""
    sizes = (f"int64_t {size.name}" for size in interface.sizes)
    return [*map(_declared, interface.arguments), *sizes]


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
