"""Arrays between canaries and against unreadable pages: a stray access shows."""

import ctypes
import mmap

import numpy as np

from tilewise.kernels.oracle.operands import Array

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
