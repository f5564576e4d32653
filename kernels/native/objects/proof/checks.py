"""Checks of an object before it is served, with calls as from C.

Operands are directly before and directly after a guard page; read-only ones are protected; results
and scratch are poisoned. An access outside ends the process, which is a failure.
"""

import ctypes
import mmap
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewise.kernels.native.ir.vectors import LINE_BYTES
from tilewise.kernels.native.objects.interface import (
    MISALIGNED,
    NO_SUCH_PART,
    NO_SUCH_SIZE,
    NULL,
    OK,
)
from tilewise.kernels.native.objects.proof.calls import LoadedObject
from tilewise.kernels.oracle.fast_algorithms import expected_by
from tilewise.kernels.oracle.operands import POISON_BYTE, Array, Operands, make_operands
from tilewise.kernels.oracle.reference import Expected, compare, reference
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule

Found = tuple[float, float]
_AT_ONCE = 2
_NOTHING, _READ, _WRITE = 0, 1, 2
_PAGE = mmap.PAGESIZE


class ObjectError(Exception):
    """An object violates its header."""


@dataclass(frozen=True)
class ObjectTrial:
    """An object with random operands and the expected result."""

    problem: Problem
    loaded: LoadedObject
    operands: Operands
    expected: Expected

    @classmethod
    def of(
        cls, problem: Problem, schedule: Schedule, loaded: LoadedObject, seed: int
    ) -> "ObjectTrial":
        """Return one with random operands."""
        operands = make_operands(problem, seed)
        expected = reference(problem, operands)
        expected = expected_by(problem, operands, expected, schedule.algorithm)
        return cls(problem, loaded, operands, expected)

    def checks(self) -> Iterator[Callable[[], Found | None]]:
        """Yield the checks, the most telling failures first."""
        yield self.finds_the_processor
        yield from self.results()
        yield self.runs_by_parts
        yield self.runs_twice_at_once
        yield self.refuses_bad_pointers
        yield self.refuses_other_sizes

    def results(self) -> Iterator[Callable[[], Found | None]]:
        """Yield those of the result and of what is accessed: all for a further size of a range."""
        yield self.runs_before_a_guard_page
        yield self.runs_behind_a_guard_page

    def finds_the_processor(self) -> None:
        """Check that it supports this processor."""
        if not self.loaded.is_supported():
            raise ObjectError("it says that this processor lacks what it needs")

    def runs_before_a_guard_page(self) -> Found:
        """Check the result, and that nothing behind its operands is accessed."""
        return self._run(at_end=True)

    def runs_behind_a_guard_page(self) -> Found:
        """Check that nothing in front of them is accessed."""
        return self._run(at_end=False)

    def runs_by_parts(self) -> Found:
        """Check that the parts, run one by one in reverse, make the same result."""
        memory = CallMemory(self, at_end=True)
        for part in reversed(range(self.loaded.interface.parts)):
            _require(OK, self.loaded.run_part(memory.addresses, part), f"part {part}")
        return self._compared(memory.out)

    def runs_twice_at_once(self) -> Found:
        """Check simultaneous calls, each with its own `out` and scratch."""
        memories = [CallMemory(self, at_end=True) for _ in range(_AT_ONCE)]
        codes: list[int] = []
        threads = [
            threading.Thread(target=lambda one=one: codes.append(self.loaded.run(one.addresses)))
            for one in memories
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for code in codes:
            _require(OK, code, "one of two calls at once")
        return max(self._compared(memory.out) for memory in memories)

    def refuses_bad_pointers(self) -> None:
        """Check that bad addresses and parts are refused without side effects."""
        memory = CallMemory(self, at_end=False)
        before = memory.out.copy()
        interface = self.loaded.interface
        for one in interface.arguments:
            if not one.operand and not interface.scratch_bytes:
                continue
            absent = {**memory.addresses, one.name: 0}
            _require(NULL, self.loaded.run(absent), f"{one.name} is null")
            if one.alignment > 1:
                off = {**memory.addresses, one.name: memory.addresses[one.name] + 1}
                _require(MISALIGNED, self.loaded.run(off), f"{one.name} is misaligned")
        for part in (-1, interface.parts, 1 << 40):
            code = self.loaded.run_part(memory.addresses, part)
            _require(NO_SUCH_PART, code, f"there is no part {part}")
        self._require_untouched(memory, before)

    def refuses_other_sizes(self) -> None:
        """Check that sizes outside the range are refused without side effects."""
        memory = CallMemory(self, at_end=False)
        before = memory.out.copy()
        for at, size in enumerate(self.loaded.interface.sizes):
            others = {size.first - size.step, size.last + size.step, -size.last, 0, 1 << 62}
            others |= {size.first + 1} if size.step > 1 else set()
            for other in sorted(others - {size.first}):
                given = self.loaded.size
                loaded = self.loaded.of_size((*given[:at], other, *given[at + 1 :]))
                for code in (loaded.run(memory.addresses), loaded.run_part(memory.addresses, 0)):
                    _require(NO_SUCH_SIZE, code, f"{size.name}={other} is not in the range")
        self._require_untouched(memory, before)

    def _require_untouched(self, memory: "CallMemory", before: Array) -> None:
        if not np.array_equal(memory.out.view(np.uint8), before.view(np.uint8)):
            raise ObjectError("it wrote to out though it refused the call")

    def _run(self, *, at_end: bool) -> Found:
        memory = CallMemory(self, at_end=at_end)
        _require(OK, self.loaded.run(memory.addresses), "a call")
        return self._compared(memory.out)

    def _compared(self, out: Array) -> Found:
        error, tolerance = compare(self.problem, out, self.expected)
        if not error <= tolerance:
            raise ObjectError(f"the result is off by {error:g}, and {tolerance:g} is allowed")
        return error, tolerance


class GuardedMemory:
    """An array between two guard pages, adjacent to the second one if `at_end`."""

    def __init__(self, source: Array, *, at_end: bool) -> None:
        inner = max(-(-source.nbytes // _PAGE), 1) * _PAGE
        self._map = mmap.mmap(-1, inner + 2 * _PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._first, self._bytes = base + _PAGE, inner
        _protect(base, _PAGE, _NOTHING)
        _protect(base + _PAGE + inner, _PAGE, _NOTHING)
        whole = np.frombuffer(self._map, np.uint8, inner, _PAGE)
        start = inner - source.nbytes if at_end else 0
        self.array = whole[start : start + source.nbytes].view(source.dtype).reshape(source.shape)
        self.array[...] = source

    @property
    def address(self) -> int:
        """Address of the array."""
        return int(self.array.ctypes.data)

    def lock(self) -> None:
        """Make it read-only."""
        _protect(self._first, self._bytes, _READ)


class CallMemory:
    """The arguments of a call between guard pages: addresses by name, and the result `out`."""

    def __init__(self, trial: ObjectTrial, *, at_end: bool) -> None:
        self._interface = trial.loaded.interface
        self._kept: list[GuardedMemory] = []
        self.addresses: dict[str, int] = {}
        scratch = _lines(self._interface.scratch_bytes, POISON_BYTE)
        for one in self._interface.arguments:
            if one.name == "scratch":
                held = self._held(scratch, at_end)
            elif one.name == "packed":
                held = self._packed(trial, at_end)
            else:
                held = self._held(trial.operands[one.operand], at_end)
            if one.is_const:
                held.lock()
            if one.operand == "C":
                self.out = held.array
            self.addresses[one.name] = held.address
        if not self._interface.scratch_bytes:
            self.addresses["scratch"] = 0

    def _held(self, source: Array, at_end: bool) -> GuardedMemory:
        self._kept.append(GuardedMemory(source, at_end=at_end))
        return self._kept[-1]

    def _packed(self, trial: ObjectTrial, at_end: bool) -> GuardedMemory:
        arrays = [trial.operands[one.operand] for one in self._interface.weights]
        weights = [self._held(array, at_end) for array in arrays]
        for one in weights:
            one.lock()
        packed = self._held(_lines(self._interface.packed_bytes, POISON_BYTE), at_end)
        code = trial.loaded.prepare(*(one.address for one in (*weights, packed)))
        _require(OK, code, "prepare")
        return packed


def _require(wanted: int, code: int, what: str) -> None:
    if code != wanted:
        raise ObjectError(f"{what}: it returned {code}, not {wanted}")


def _lines(size: int, byte: int) -> Array:
    """Return bytes of one value in whole cache lines, at least one."""
    assert size % LINE_BYTES == 0
    return np.full(max(size, LINE_BYTES), byte, np.uint8)


def _protect(address: int, size: int, access: int) -> None:
    libc: Any = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), access) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
