"""How fast an object is, beside our own call of the same schedule."""

import time
from dataclasses import dataclass
from statistics import median

import numpy as np

from kernels.native.executable import lower
from kernels.native.objects.proof.loaded import LoadedObject
from kernels.oracle.operands import empty_aligned, make_operands
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.target.model import Target

SHORTEST = 100e-6  # seconds of a sample; a call through ctypes costs about a microsecond
FEWEST, MOST = 5, 2000


@dataclass(frozen=True)
class Timed:
    """Seconds of one call, and its speed over our own; None where our own has threads."""

    seconds: float
    ratio: float | None


def time_beside_ours(
    problem: Problem, schedule: Schedule, target: Target, loaded: LoadedObject, seconds: float
) -> Timed:
    """Time an object for about `seconds`, in turns with our own call on the same operands."""
    operands = make_operands(problem)
    scratch = empty_aligned((max(loaded.interface.scratch_bytes, 1),), np.uint8)
    addresses = {one.name: operands[one.operand].ctypes.data if one.operand else
                 scratch.ctypes.data for one in loaded.interface.arguments}  # fmt: skip
    packed = empty_aligned((max(loaded.interface.packed_bytes, 1),), np.uint8)
    if loaded.interface.weights:
        addresses["packed"] = packed.ctypes.data
        loaded.prepare(operands["B"].ctypes.data, packed.ctypes.data)
    ours = None if loaded.interface.parts > 1 else lower(problem, schedule, target).bind(operands)

    def object_runs(repeat: int) -> float:
        begin = time.perf_counter()
        for _ in range(repeat):
            loaded.run(addresses)
        return (time.perf_counter() - begin) / repeat

    def ours_runs(repeat: int) -> float:
        begin = time.perf_counter()
        for _ in range(repeat):
            if ours is not None:
                ours()
        return (time.perf_counter() - begin) / repeat

    object_runs(1)
    ours_runs(1)
    repeat = max(1, int(SHORTEST / object_runs(1)))
    samples: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while len(samples) < FEWEST or (time.perf_counter() < end and len(samples) < MOST):
        first = object_runs(repeat) if len(samples) % 2 else 0.0
        other = ours_runs(repeat)
        samples.append((first or object_runs(repeat), other))
    ratio = None if ours is None else median(other / one for one, other in samples)
    return Timed(median(one for one, _ in samples), ratio)
