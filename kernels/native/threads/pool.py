"""A pool of pinned threads that run the parts of a parallel function.

A helper waits for work in compiled code, without Python's lock, for as long as a caller in a loop
needs to call again; then it sleeps. A call costs a few hundred nanoseconds in a loop, and one
wake-up (some 50 us) after a pause.
"""

import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tilewise.kernels.native.language.shared_words import FUNCTION, GENERATION, PARTS, PHASE
from tilewise.kernels.native.threads.pinning import pin

SPINS = 1 << 13
Entry = ctypes.CFUNCTYPE(None, ctypes.c_int64)


def _call(method: Callable[[], Callable[[], None] | None]) -> None:
    """Call a method of an object that may be gone."""
    found = method()
    if found is not None:
        found()


class ThreadPool:
    """The caller and `len(processors) - 1` helpers, each on a processor of its own.

    `serve` and `publish` are compiled functions of the language of macro-kernels. The pool owns the
    `barrier` at the end of what they run: a helper that lost its processor there still reads it
    after the caller has returned; so it owns what is `kept` for helpers.

    Helpers start with the first run. A forked process has none of them, and starts its own. An
    exception, such as Ctrl-C, may interrupt a run wherever the caller is in Python, and helpers
    then wait for its part; two words that all threads share show whether that is so.
    """

    def __init__(
        self, processors: Sequence[int], barrier: Any, serve: Callable[[int, int, int, int], int],
        publish: Callable[[int, int], None], kept: object = None,
    ) -> None:  # fmt: skip
        self._home, *self._others = processors
        self._barrier, self._kept = barrier, kept
        self._serve, self._publish = serve, publish
        self._board = np.zeros(PARTS + len(processors), np.int64)
        self._is_over = False
        self._forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=partial(_call, weakref.WeakMethod(self._forget)))

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

    def stop(self) -> None:
        """Let helpers end."""
        self._is_over = True
        for wake in self._wake:
            wake.release()

    def _run(self, entry: int, mine: int, *others: int) -> None:
        function = Entry(entry)
        # Known before anything changes, and put back by one call: a signal may end any two.
        before = os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else set()
        try:
            self._pin(self._home)
            self._catch_up()
            self._start()
            self._board[FUNCTION] = entry
            self._board[PARTS : PARTS + len(others)] = others
            generation = int(self._board[GENERATION]) + 1
            self._begun = generation, int(self._barrier[PHASE]), entry, mine
            self._publish(self._board.ctypes.data, generation)
            self._rouse()
            function(mine)
        except BaseException:
            self._catch_up()
            raise
        finally:
            if before:
                os.sched_setaffinity(0, before)

    def _pin(self, processor: int) -> None:
        try:
            pin({processor})
        except OSError:  # not allowed any more, as in a container that was limited since
            return

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
            arguments = helper, self._others[helper], int(self._board[GENERATION])
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
        self._pin(processor)
        board = self._board.ctypes.data
        while not self._is_over:
            seen = self._serve(board, helper, seen, SPINS)
            # Set before the last look: a caller sees this, or the helper sees the new work.
            self._asleep[helper] = True
            if self._board[GENERATION] == seen:
                self._wake[helper].acquire()
            else:
                self._asleep[helper] = False
