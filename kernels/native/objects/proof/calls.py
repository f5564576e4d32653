"""Calls of an object as from C, and its speed relative to our own."""

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from tilewise.kernels.native.executable import lower
from tilewise.kernels.native.jit.loading import Loaded
from tilewise.kernels.native.jit.object_code import ObjectCode
from tilewise.kernels.native.objects.interface import Interface
from tilewise.kernels.oracle.operands import Operands, empty_aligned, make_operands
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target.model import Target

SHORTEST = 100e-6  # seconds of a sample; a call through ctypes costs about a microsecond
FEWEST, MOST = 9, 2000
TICK = 1e-7  # seconds; a clock of the thread may not advance during a short call


class LoadedObject:
    """The functions of an object file with an interface.

    `size` is what they are given of a range of problems: the value of each dim.
    """

    def __init__(self, interface: Interface, data: bytes) -> None:
        self.interface = interface
        self.size: Sequence[int] = ()
        self._owner = Loaded(ObjectCode(interface.functions, data))
        addresses = dict(zip(interface.functions, self._owner.addresses, strict=True))
        given: list[Any] = [ctypes.c_void_p] * len(interface.arguments)
        given += [ctypes.c_int64] * len(interface.sizes)
        name, integer = interface.name, ctypes.c_int
        self._supported = ctypes.CFUNCTYPE(integer)(addresses[f"{name}_supported"])
        self._run = ctypes.CFUNCTYPE(integer, *given)(addresses[name])
        self._part = ctypes.CFUNCTYPE(integer, *given, ctypes.c_int64)(addresses[f"{name}_part"])
        if interface.weights:
            prepare = addresses[f"{name}_prepare"]
            count = len(interface.weights) + 1
            self._prepare = ctypes.CFUNCTYPE(integer, *[ctypes.c_void_p] * count)(prepare)

    def of_size(self, size: Sequence[int]) -> "LoadedObject":
        """Return the same functions for another size."""
        other = copy(self)
        other.size = size
        return other

    def is_supported(self) -> bool:
        """Return whether the processor has what it needs."""
        return bool(self._supported())

    def prepare(self, *addresses: int) -> int:
        """Pack constant weights to the last address; return the code."""
        return int(self._prepare(*addresses))

    def run(self, addresses: Mapping[str, int]) -> int:
        """Compute all, with addresses by argument name; return the code."""
        return int(self._run(*self._in_order(addresses)))

    def run_part(self, addresses: Mapping[str, int], part: int) -> int:
        """Compute one part; return the code."""
        return int(self._part(*self._in_order(addresses), part))

    def _in_order(self, addresses: Mapping[str, int]) -> list[int]:
        return [*(addresses[one.name] for one in self.interface.arguments), *self.size]


@dataclass(frozen=True)
class CallTime:
    """Seconds of one call, and speed over our own; None if that has threads."""

    seconds: float
    ratio: float | None


def time_against_kernel(
    problem: Problem, schedule: Schedule, target: Target, loaded: LoadedObject, seconds: float
) -> CallTime:
    """Time an object for about `seconds` in turn with our own call."""
    operands = make_operands(problem)
    runs: list[Callable[[], object]] = [bound(loaded, operands)]
    if loaded.interface.parts == 1:
        runs.append(lower(problem, schedule, target).bind(operands))
    samples = in_turns(runs, seconds)
    ratio = median(turn[1] / turn[0] for turn in samples) if len(runs) > 1 else None
    return CallTime(median(turn[0] for turn in samples), ratio)


def bound(loaded: LoadedObject, operands: Operands) -> Callable[[], object]:
    """Return a call of an object on operands, with its own scratch and prepared weights."""
    interface = loaded.interface
    scratch = empty_aligned((max(interface.scratch_bytes, 1),), np.uint8)
    packed = empty_aligned((max(interface.packed_bytes, 1),), np.uint8)
    arrays = {"scratch": scratch, "packed": packed}
    addresses = {
        one.name: (arrays[one.name] if one.name in arrays else operands[one.operand]).ctypes.data
        for one in interface.arguments
    }
    if interface.weights:
        weights = (operands[one.operand] for one in interface.weights)
        loaded.prepare(*(array.ctypes.data for array in (*weights, packed)))
    kept = dict(operands) | arrays

    def run() -> object:
        assert kept  # what the addresses point into
        return loaded.run(addresses)

    return run


def in_turns(runs: Sequence[Callable[[], object]], seconds: float) -> list[list[float]]:
    """Return seconds of one call of each per turn; turns start with different ones."""
    for run in runs:
        run()
    # The least of a few: after one slow call a sample of single calls would be too short to time.
    shortest = [min(_seconds(run, 1) for _ in range(FEWEST)) for run in runs]
    repeats = [max(1, int(SHORTEST / seconds)) for seconds in shortest]
    turns: list[list[float]] = []
    end = time.perf_counter() + seconds
    while len(turns) < FEWEST or (time.perf_counter() < end and len(turns) < MOST):
        first = len(turns) % len(runs)
        order = [*range(first, len(runs)), *range(first)]
        taken = {which: _seconds(runs[which], repeats[which]) for which in order}
        turns.append([taken[which] for which in range(len(runs))])
    return turns


def _seconds(run: Callable[[], object], repeat: int) -> float:
    """Return seconds of this thread."""
    begin = time.thread_time()
    for _ in range(repeat):
        run()
    return max(time.thread_time() - begin, TICK) / repeat
