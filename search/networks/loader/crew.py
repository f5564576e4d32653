"""The thread pool of a network."""

import ctypes
import mmap
import os
import threading
from typing import Any

import numpy as np

from tilewise.kernels.native.threads.pinning import pin, usable_processors

SPINS = 1 << 13  # looks for the next run before a helper sleeps
_ADDRESS = ctypes.c_void_p
_BARRIER_WORDS, _PHASE = 16, 8
"""Of 8 bytes; the phase turns whenever all threads have met."""


class Crew:
    """The calling thread and pinned helpers, which spin for work and then sleep.

    It belongs to one process; a fork has none of its threads. An exception such as Ctrl-C may
    interrupt a run in Python after helpers were started, so that they wait at the barrier; two
    shared words detect that. The arrays are kept alive for helpers that still read them.
    """

    def __init__(
        self, code: ctypes.CDLL, steps: Any, about: dict[str, Any], activations: Any, weights: Any
    ) -> None:
        self._steps = steps
        self._help, self._tell = (code[f"{about['name']}_{ending}"] for ending in ("help", "tell"))
        self._tell.argtypes, self._tell.restype = [_ADDRESS, *[ctypes.c_int64] * 3], None
        self._help.argtypes = [_ADDRESS, *[ctypes.c_int64] * 2, *[_ADDRESS] * 2, ctypes.c_int64]
        self._help.restype = ctypes.c_int64
        self._kept = activations, weights
        self._memory = activations.ctypes.data, weights.ctypes.data
        end = about["barrier"] + 8 * _BARRIER_WORDS
        self._barrier = activations[about["barrier"] : end].view(np.int64)
        self._barrier[:] = 0
        board = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._board = np.frombuffer(board, np.int64)
        self._begun = 0, 0
        self._process, self._is_over = os.getpid(), False
        usable = usable_processors()
        self._home, *others = (usable[i % len(usable)] for i in range(about["threads"]))
        self._asleep = [False] * len(others)
        self._wake = [threading.Semaphore(0) for _ in others]
        for helper, processor in enumerate(others):
            threading.Thread(target=self._serve, args=(helper, processor), daemon=True).start()

    @property
    def is_here(self) -> bool:
        """Whether its threads belong to this process."""
        return self._process == os.getpid()

    def run(self, first: int, end: int) -> None:
        """Run steps on all threads."""
        before = pin({self._home})
        try:
            self._catch_up()
            generation = int(self._board[0]) + 1
            self._begun = generation, int(self._barrier[_PHASE])
            self._tell(self._board.ctypes.data, generation, first, end)
            for helper, asleep in enumerate(self._asleep):
                if asleep:
                    self._asleep[helper] = False
                    self._wake[helper].release()
            self._steps(*self._memory, 0, first, end)
        except BaseException:
            self._catch_up()
            raise
        finally:
            if before is not None:
                pin(before)

    def stop(self) -> None:
        """Let helpers end."""
        self._is_over = True
        if self.is_here:
            self._rouse()

    def _catch_up(self) -> None:
        """Complete a run that helpers began without this thread."""
        if self._begun == (self._board[0], self._barrier[_PHASE]) and self._begun[0]:
            self._rouse()
            self._steps(*self._memory, 0, int(self._board[1]), int(self._board[2]))

    def _rouse(self) -> None:
        """Wake all helpers."""
        for wake in self._wake:
            wake.release()

    def _serve(self, helper: int, processor: int) -> None:
        pin({processor})
        seen = 0
        while not self._is_over:
            seen = self._help(self._board.ctypes.data, seen, SPINS, *self._memory, helper + 1)
            # Said before the last look, so that a caller sees one or the helper the other.
            self._asleep[helper] = True
            if self._board[0] == seen:
                self._wake[helper].acquire()
            else:
                self._asleep[helper] = False
