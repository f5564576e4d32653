"""A schedule as an object, as bitcode, and with its header: the same for the same input."""

from dataclasses import dataclass

import llvmlite.binding as llvm

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.export.description import Tuned
from tilewise.kernels.native.objects.entries import Entries
from tilewise.kernels.native.objects.interface import Interface, header_text
from tilewise.kernels.native.objects.module import ObjectCompiler
from tilewise.kernels.native.plan import plan
from tilewise.kernels.problem import Problem
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
        LoweringError: it asks for what the target has not, or this machine is no x86-64.
    """
    if not llvm.get_process_triple().startswith("x86_64"):
        raise LoweringError(
            "objects are made for x86-64 on x86-64; tilewise kernel --format module runs here"
        )
    planned = plan(problem, schedule, target, shares_driver=False)
    interface = Interface.of(problem, schedule, target, planned)
    try:
        compiler = ObjectCompiler(Entries.of(interface, planned), planned, target)
        bitcode = compiler.bitcode()
        data = compiler.object_file(bitcode)
    except RuntimeError as error:  # LLVM's own
        raise LoweringError(f"compiling {schedule} failed: {error}") from error
    header = header_text(problem, schedule, target, interface, compiler.features, tuned)
    return KernelObject(interface, compiler.features, data, bitcode, header)
