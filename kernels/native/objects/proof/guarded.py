"""Memory between pages that nobody may touch: an access one byte beside it ends the process."""

import ctypes
import mmap
from typing import Any

import numpy as np

from tilewise.kernels.native.ir.vectors import LINE_BYTES
from tilewise.kernels.oracle.operands import Array

_NOTHING, _READ, _WRITE = 0, 1, 2
_PAGE = mmap.PAGESIZE


class GuardedMemory:
    """An array in pages of its own; a page before them and one behind may not be touched.

    Args:
        source: what it holds at first.
        at_end: whether it ends where the page behind begins, or begins where the one before ends.

    Attributes:
        array: the array.
    """

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
        """Where it begins."""
        return int(self.array.ctypes.data)

    def lock(self) -> None:
        """Let nobody write to it any more."""
        _protect(self._first, self._bytes, _READ)


def lines(size: int, byte: int) -> Array:
    """So many bytes of one value; they have to be whole cache lines, and are one at least."""
    assert size % LINE_BYTES == 0
    return np.full(max(size, LINE_BYTES), byte, np.uint8)


def _protect(address: int, size: int, access: int) -> None:
    libc: Any = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), access) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
