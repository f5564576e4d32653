"""A pool of pinned threads that run the parts of a parallel kernel.

A helper waits for work in compiled code, without Python's lock, for as long as a caller in a loop
needs to call again; then it sleeps. A call costs a few hundred nanoseconds in a loop, and one
wake-up (some 50 us) after a pause.
"""

import ctypes
import os
import threading
from collections.abc import Sequence
from itertools import cycle, islice

import numpy as np
from numba import njit

from tilewise.kernels.native.language.intrinsics import (
    call_address,
    pause,
    read_shared,
    word,
    write_shared,
)
from tilewise.kernels.native.language.primitives import BARRIER_WORDS, LINE_WORDS, PHASE
from tilewise.kernels.native.threads.pinning import pin, usable_processors
from tilewise.kernels.oracle.operands import empty_aligned

GENERATION, FUNCTION, PARTS = 0, LINE_WORDS, 2 * LINE_WORDS  # in words; PARTS has one each
SPINS = 1 << 13
Entry = ctypes.CFUNCTYPE(None, ctypes.c_int64)


@njit("int64(int64, int64, int64, int64)", nogil=True)
def serve(board: int, helper: int, seen: int, spins: int) -> int:
    """Run what is put on the board until `spins` looks find nothing new; return the last seen."""
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


class ThreadPool:
    """The caller and `len(processors) - 1` helpers, each on a processor of its own.

    The pool owns the barrier at the end of what they run: a helper that lost its processor there
    still reads it after the caller has returned.

    Helpers start with the first run. A forked process has none of them, and starts its own. An
    exception, such as Ctrl-C, may interrupt a run wherever the caller is in Python, and helpers
    then wait for its part; two words that all threads share show whether that is so.
    """

    def __init__(self, processors: Sequence[int]) -> None:
        self._home, *self._others = processors
        self._barrier = empty_aligned((BARRIER_WORDS,), np.int64)
        self._board = empty_aligned((PARTS + len(processors),), np.int64)
        self._forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    @property
    def barrier(self) -> int:
        """Return the address of the barrier of all members."""
        address: int = self._barrier.ctypes.data
        return address

    def run(self, entry: int, parts: Sequence[int]) -> None:
        """Call the function at address `entry` with each of `parts`, at the same time.

        There is a part for every member. The function has to end with the pool's barrier: this
        returns with the caller's own part, when no member reads the board any more. Calls from
        several threads wait for each other.
        """
        with self._one_at_a_time:
            self._run(entry, *parts)

    def _run(self, entry: int, mine: int, *others: int) -> None:
        function = Entry(entry)
        before = pin({self._home})
        try:
            self._catch_up()
            self._start()
            self._board[FUNCTION] = entry
            self._board[PARTS : PARTS + len(others)] = others
            generation = int(self._board[GENERATION]) + 1
            self._begun = generation, int(self._barrier[PHASE]), entry, mine
            publish(self._board.ctypes.data, generation)
            self._rouse()
            function(mine)
        except BaseException:
            self._catch_up()
            raise
        finally:
            if before is not None:
                pin(before)

    def _forget(self) -> None:
        """Begin without helpers and with no run, whatever state a parent process had."""
        self._one_at_a_time = threading.Lock()
        self._barrier[:] = 0
        self._board[:] = 0
        self._begun = 0, 0, 0, 0
        self._started = 0
        self._wake = [threading.Semaphore(0) for _ in self._others]
        self._asleep = [False for _ in self._others]

    def _start(self) -> None:
        """Start the missing helpers."""
        while self._started < len(self._others):
            helper = self._started
            arguments = helper, self._others[helper], self._board[GENERATION]
            thread = threading.Thread(target=self._help, args=arguments, daemon=True)
            try:
                self._started += 1
                thread.start()
            except BaseException:
                if thread.ident is None:  # it did not start, as where the system has no more
                    self._started = helper
                raise

    def _catch_up(self) -> None:
        """End a run that helpers know of and the caller has not done its part of."""
        generation, phase, entry, mine = self._begun
        if entry and (generation, phase) == (self._board[GENERATION], self._barrier[PHASE]):
            for wake in self._wake:  # one that has nothing to do sleeps again
                wake.release()
            Entry(entry)(mine)

    def _rouse(self) -> None:
        for helper, asleep in enumerate(self._asleep):
            if asleep:
                self._asleep[helper] = False
                self._wake[helper].release()

    def _help(self, helper: int, processor: int, seen: int) -> None:
        pin({processor})
        board = self._board.ctypes.data
        while True:
            seen = serve(board, helper, seen, SPINS)
            # Set before the last look: a caller sees this, or the helper sees the new work.
            self._asleep[helper] = True
            if self._board[GENERATION] == seen:
                self._wake[helper].acquire()
            else:
                self._asleep[helper] = False


_POOLS: dict[int, ThreadPool] = {}


def thread_pool(threads: int) -> ThreadPool:
    """Return the pool of this process with `threads` members; they may share processors."""
    if threads not in _POOLS:
        made = ThreadPool(list(islice(cycle(usable_processors()), threads)))
        _POOLS.setdefault(threads, made)  # another thread may have been faster
    return _POOLS[threads]
