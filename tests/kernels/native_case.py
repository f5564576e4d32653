"""What every test of native kernels checks, and the targets that it is checked for."""

import ctypes
import mmap
from dataclasses import replace

import numpy as np
import pytest

from tilewise.kernels.native import executable, lower
from tilewise.kernels.native.macrokernel import shared_structure
from tilewise.kernels.native.microkernels import microkernel
from tilewise.kernels.nest import count
from tilewise.kernels.oracle.fast_algorithms import expected_by
from tilewise.kernels.oracle.operands import ALIGNMENT, Array, make_operands
from tilewise.kernels.oracle.reference import compare, reference
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import Target, detect

PAGE = mmap.PAGESIZE
PROT_NONE = 0
CANARY = 0xA7


class GuardedArray:
    """An array whose last byte touches a page that may not be read or written.

    One that is to begin at a multiple of `alignment` bytes ends up to as many before that page,
    and the bytes between are canaries too.
    """

    def __init__(self, source: Array, alignment: int = 1) -> None:
        size = -(-source.nbytes // alignment) * alignment
        pages = -(-size // PAGE) + 1
        self._map = mmap.mmap(-1, (pages + 1) * PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        libc = ctypes.CDLL(None, use_errno=True)
        guard = ctypes.c_void_p(base + pages * PAGE)
        assert libc.mprotect(guard, ctypes.c_size_t(PAGE), PROT_NONE) == 0
        self._all = np.frombuffer(self._map, np.uint8, pages * PAGE)
        self._all[:] = CANARY
        self._start = pages * PAGE - size
        self._end = self._start + source.nbytes
        self.array = self._all[self._start : self._end].view(source.dtype).reshape(source.shape)
        self.array[...] = source

    def is_intact(self) -> bool:
        """Whether nothing was written in front of the array, or right behind it."""
        around = self._all[: self._start], self._all[self._end :]
        return all(bool((part == CANARY).all()) for part in around)


AVX2 = frozenset({"avx2", "fma"})


def lowered_targets() -> list[Target]:
    """This machine, and the same with fewer features handed to the code generator."""
    host = detect()
    narrow = Target(host.cpu, features=AVX2, vector_bytes=32, vector_registers=16)
    portable = Target(host.cpu, features=frozenset(), vector_bytes=16, vector_registers=16)
    tiles = {name for name in host.features if name.startswith("amx")}  # none comes without VNNI
    fewer = host.features - tiles - {"avx512bf16", "avx512vnni"}
    plain = replace(host, features=fewer, l2_bytes=1)  # panels that were packed ahead are far away
    return [host, plain, narrow, portable]


TARGETS = lowered_targets()


def check(problem: Problem, schedule: Schedule, target: Target, seed: int) -> None:
    """The result is right, nothing outside operands and scratch is touched, the counts hold.

    With an odd seed the code is that of a large problem: a driver that other schedules share,
    and one step of the reduction at a time in the micro-kernels that few calls would go to.
    """
    with pytest.MonkeyPatch.context() as patch:
        if seed % 2:
            patch.setattr(shared_structure, "LEAST_WORK", 0)
            patch.setattr(microkernel, "RARE_SHARE", 1.0)
        scratch: list[GuardedArray] = []

        def guarded_scratch(shape: tuple[int, ...], dtype: type) -> Array:
            scratch.append(GuardedArray(np.full(shape, CANARY, dtype), ALIGNMENT))
            return scratch[-1].array

        patch.setattr(executable, "empty_aligned", guarded_scratch)
        _check(problem, schedule, target, seed)
        assert len(scratch) in (2, 3) and all(panels.is_intact() for panels in scratch)


def _check(problem: Problem, schedule: Schedule, target: Target, seed: int) -> None:
    operands = make_operands(problem, seed)
    exact = reference(problem, operands)
    expected = expected_by(problem, operands, exact, schedule.algorithm)
    guarded = {name: GuardedArray(array) for name, array in operands.items()}
    lowered = lower(problem, schedule, target)
    counts = lowered.counted_run({name: g.array for name, g in guarded.items()})
    error, tolerance = compare(problem, guarded["C"].array, expected)
    assert error <= tolerance, (problem, schedule)
    assert all(g.is_intact() for g in guarded.values())
    for name in ("A", "B"):
        assert np.array_equal(guarded[name].array, operands[name])
    meant = count(lowered.nest)
    assert counts["micro_kernels"] == meant.micro_kernels
    assert {k: v for k, v in counts.items() if k in meant.packs} == meant.packs
