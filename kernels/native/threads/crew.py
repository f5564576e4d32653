"""Pinned threads that run the parts of a parallel kernel, and wait for the next one.

A helper waits for work in compiled code, without Python's lock, for as long as a caller
in a loop needs to come back; then it sleeps. So a call costs a few hundred nanoseconds
in a loop and one wake-up (some 50 us) after a pause.
"""

import ctypes
import functools
import threading
from collections.abc import Sequence
from itertools import cycle, islice

import numpy as np
from numba import njit

from kernels.native.language.barrier import (
    BARRIER_WORDS,
    LINE_WORDS,
    pause,
    read_shared,
    write_shared,
)
from kernels.native.language.words import call_address, word
from kernels.native.threads.pinning import pin, usable_processors
from kernels.oracle.operands import empty_aligned

GENERATION, FUNCTION, PARTS = 0, LINE_WORDS, 2 * LINE_WORDS  # in words; PARTS has one each
SPINS = 1 << 13
Entry = ctypes.CFUNCTYPE(None, ctypes.c_int64)


@njit("int64(int64, int64, int64, int64)", nogil=True)
def serve(board: int, helper: int, seen: int, spins: int) -> int:
    """Run what is put on the board until nothing new came for `spins` looks; the last seen."""
    left = spins
    while left > 0:
        now = read_shared(board, GENERATION)
        if now == seen:
            pause()
            left -= 1
            continue
        seen = now
        left = spins
        call_address(word(board, FUNCTION), word(board, PARTS + helper))
    return seen


@njit("void(int64, int64)", nogil=True)
def publish(board: int, generation: int) -> None:
    """Let helpers see what is on the board."""
    write_shared(board, GENERATION, generation)


class Crew:
    """The caller and `len(processors) - 1` helpers, each on a processor of its own.

    The barrier at the end of what they run is the crew's, and lives as long: a helper that
    lost its processor there still looks at it when the caller has long returned.
    """

    def __init__(self, processors: Sequence[int]) -> None:
        self._home = {processors[0]}
        self._barrier = empty_aligned((BARRIER_WORDS,), np.int64)
        self._barrier[:] = 0
        self._board = empty_aligned((PARTS + len(processors),), np.int64)
        self._board[:] = 0
        self._generation = 0
        self._one_at_a_time = threading.Lock()
        self._wake = [threading.Semaphore(0) for _ in processors[1:]]
        self._asleep = [False for _ in processors[1:]]
        for helper, processor in enumerate(processors[1:]):
            arguments = (helper, processor)
            threading.Thread(target=self._help, args=arguments, daemon=True).start()

    @property
    def barrier(self) -> int:
        """The address of the barrier of all members."""
        address: int = self._barrier.ctypes.data
        return address

    def run(self, entry: int, parts: Sequence[int]) -> None:
        """Call the function at address `entry` with each of `parts`, at the same time.

        There is a part for every member. The function has to end with the crew's barrier:
        this returns when the caller's own part does, and nobody reads the board then.
        """
        mine, *others = parts
        function = Entry(entry)
        with self._one_at_a_time:
            before = pin(self._home)
            try:
                self._board[FUNCTION] = entry
                self._board[PARTS : PARTS + len(others)] = others
                self._generation += 1
                publish(self._board.ctypes.data, self._generation)
                self._rouse()
                function(mine)
            finally:
                if before is not None:
                    pin(before)

    def _rouse(self) -> None:
        for helper, asleep in enumerate(self._asleep):
            if asleep:
                self._asleep[helper] = False
                self._wake[helper].release()

    def _help(self, helper: int, processor: int) -> None:
        pin({processor})
        board, seen = self._board.ctypes.data, 0
        while True:
            seen = serve(board, helper, seen, SPINS)
            # Said before the last look, so that a caller sees one or the helper the other.
            self._asleep[helper] = True
            if self._generation == seen:
                self._wake[helper].acquire()
            else:
                self._asleep[helper] = False


@functools.cache
def crew(threads: int) -> Crew:
    """The crew of this process with `threads` members; they share where processors are few."""
    return Crew(list(islice(cycle(usable_processors()), threads)))
