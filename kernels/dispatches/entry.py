"""A problem with the schedule that computes it, and the code of both."""

from dataclasses import dataclass

from tilewise.kernels.dispatches.layouts import check_layouts
from tilewise.kernels.native.objects.make import KernelObject, make_object
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target.model import Target


@dataclass(frozen=True)
class Entry:
    """What a library has a kernel for.

    Attributes:
        problem: what is computed.
        schedule: how.
        found: the problem of the ops that it stands for, which may differ in the axes of images and
            in zeros around them; None where it is `problem`.
    """

    problem: Problem
    schedule: Schedule
    found: Problem | None = None


@dataclass(frozen=True)
class Compiled:
    """An entry with its code.

    Attributes:
        problem: what is computed.
        made: the kernel as bitcode, and the interface that IREE calls.
        stands_for: the problem of the ops that it stands for; None where it is `problem`.
    """

    problem: Problem
    made: KernelObject
    stands_for: Problem | None = None

    @property
    def found(self) -> Problem:
        """The problem of the ops that it stands for."""
        return self.stands_for or self.problem

    @property
    def name(self) -> str:
        """The kernel's symbol, which names its executable and its code."""
        return self.made.interface.name


def compiled(entry: Entry, target: Target) -> Compiled:
    """The code of an entry.

    Raises:
        ScheduleError: the schedule cannot be applied to the problem.
        LoweringError: it asks for what the target has not, or this machine is no x86-64.
        UnsupportedError: the problem is not that of the ops, whatever the layouts.
    """
    found = entry.found or entry.problem
    check_layouts(found, entry.problem)
    return Compiled(entry.problem, make_object(entry.problem, entry.schedule, target), found)
