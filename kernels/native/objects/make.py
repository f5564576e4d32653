"""A schedule as an object, as bitcode, and with its header: the same for the same input."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import llvmlite.binding as llvm

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.export.description import Tuned
from tilewise.kernels.native.objects.entries import Entries, Variant
from tilewise.kernels.native.objects.header import header_text
from tilewise.kernels.native.objects.interface import Interface, packed_size
from tilewise.kernels.native.objects.module import ObjectCompiler
from tilewise.kernels.native.plan import plan
from tilewise.kernels.native.range_plan import RangePlan
from tilewise.kernels.problem import Problem
from tilewise.kernels.range_schedule import RangeSchedule
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target.model import Target


@dataclass(frozen=True)
class KernelObject:
    """A kernel for other programs to link.

    Attributes:
        interface: its functions.
        features: what they need of an x86-64 processor, by LLVM's names.
        object: a relocatable ELF file that wants nothing of others.
        bitcode: what LLVM made the object of.
        header: in C.
    """

    interface: Interface
    features: tuple[str, ...]
    object: bytes
    bitcode: bytes
    header: str


def make_object(
    problem: Problem, schedule: Schedule, target: Target, tuned: Tuned | None = None
) -> KernelObject:
    """Compile a schedule for programs that have nothing of ours; it is not proven yet.

    Args:
        problem: what the kernel computes.
        schedule: how.
        target: the machine that it is for.
        tuned: its speed there, where it is known, for the header.

    Raises:
        ScheduleError: the schedule cannot be applied to the problem.
        LoweringError: it needs what the target lacks, or this machine is no x86-64.
    """
    _check_machine()
    planned = plan(problem, schedule, target, shares_code=False)
    interface = Interface.of(problem, schedule.hash, target, [planned])
    variants = [Variant(planned)]
    entries = Entries.of(interface, variants)
    return _compiled(schedule, problem, target, interface, entries, variants, tuned)


def make_range_object(schedule: RangeSchedule, target: Target) -> KernelObject:
    """Compile the schedules of a range for programs that have nothing of ours; not proven yet.

    The function takes the sizes behind its pointers, and finds the variant and what varies by one
    look into a table. Constant weights are packed once in each format that variants read.

    Raises:
        ScheduleError: a schedule cannot be applied to a size that it serves.
        LoweringError: as `make_object`; or the sizes of a variant need different code, or variants
            have different numbers of threads.
    """
    _check_machine()
    problems = schedule.problems
    plans = [
        RangePlan.of(problems, one, schedule.sizes_of(at), target)
        for at, one in enumerate(schedule.variants)
    ]
    if len({len(one.planned.nest.parts) for one in plans}) > 1:
        raise LoweringError(
            f"{problems}: variants have different numbers of threads; tune it again"
        )
    places, packed_bytes = dict[Hashable, int](), 0
    variants = []
    for at, one in enumerate(plans):
        if one.packed_format not in places:
            places[one.packed_format] = packed_bytes
            packed_bytes += packed_size(problems.smallest, one.planned)
        variants.append(Variant(one.planned, one.varying, f"_{at}", places[one.packed_format]))
    planned = [one.planned for one in plans]
    interface = Interface.of(problems, schedule.hash, target, planned, packed_bytes)
    served = zip(problems.sizes, schedule.choice, strict=True)
    rows = [(chosen, *plans[chosen].rows[size]) for size, chosen in served]
    entries = Entries.of(interface, variants, rows)
    return _compiled(schedule, problems.smallest, target, interface, entries, variants)


def _check_machine() -> None:
    if not llvm.get_process_triple().startswith("x86_64"):
        raise LoweringError(
            "objects are made for x86-64 on x86-64; tilewise kernel --format module runs here"
        )


def _compiled(
    what: Schedule | RangeSchedule,
    problem: Problem,
    target: Target,
    interface: Interface,
    entries: Entries,
    variants: Sequence[Variant],
    tuned: Tuned | None = None,
) -> KernelObject:
    try:
        compiler = ObjectCompiler(entries, variants, target)
        bitcode = compiler.bitcode()
        data = compiler.object_file(bitcode)
    except RuntimeError as error:  # LLVM's own
        raise LoweringError(f"compiling {what.hash} failed: {error}") from error
    header = header_text(what, problem, target, interface, compiler.features, tuned)
    return KernelObject(interface, compiler.features, data, bitcode, header)
