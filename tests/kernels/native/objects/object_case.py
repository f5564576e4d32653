"""What every test of objects checks: the interface holds, in this process."""

from tilewise.kernels.native.objects.make import KernelObject, make_object
from tilewise.kernels.native.objects.object_files import Elf
from tilewise.kernels.native.objects.proof.calls import LoadedObject
from tilewise.kernels.native.objects.proof.checks import ObjectTrial
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import Target


def check_object(problem: Problem, schedule: Schedule, target: Target, seed: int) -> KernelObject:
    """All that a proof checks, but for the speed; and that the file wants nothing of others."""
    made = make_object(problem, schedule, target)
    found = Elf.read(made.object)
    assert found.undefined == () and found.writable_bytes == 0
    assert found.defined == tuple(sorted(made.interface.functions))
    loaded = LoadedObject(made.interface, made.object)
    for check in ObjectTrial.of(problem, schedule, loaded, seed).checks():
        check()
    return made
