"""Memory for a whole network, in huge pages where the system has them."""

import mmap
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.search.networks.running.placing import LINE

Array = NDArray[Any]
_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
"""What is shared is also no memory of which Linux makes huge pages, unless it is told to."""


class Arena:
    """Zeroed memory, of which parts are arrays; a process that is forked off has a copy.

    Args:
        size: in bytes.
        has_huge_pages: whether the system is asked for them, where it knows how.
    """

    def __init__(self, size: int, *, has_huge_pages: bool = True) -> None:
        self._map = mmap.mmap(-1, max(size, 1), **_PRIVATE)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # of a system that is built without them
                self._map.madvise(mmap.MADV_HUGEPAGE if has_huge_pages else mmap.MADV_NOHUGEPAGE)
        self.bytes: Array = np.frombuffer(self._map, np.uint8)[:size]
        self._taken = 0

    @property
    def left(self) -> int:
        """Bytes that nothing has taken."""
        return len(self.bytes) - self._taken

    def part(self, offset: int, size: int) -> Array:
        """So many bytes at an offset."""
        return self.bytes[offset : offset + size]

    def take(self, size: int) -> Array:
        """The next so many bytes, from a cache line on."""
        found = self.part(self._taken, size)
        self._taken += -(-size // LINE) * LINE
        return found

    def keep(self, values: Array) -> Array:
        """A copy of an array."""
        held = self.take(values.nbytes).view(values.dtype).reshape(values.shape)
        held[...] = values
        return held


def room(*sizes: int) -> int:
    """Bytes that `take` needs for parts of such sizes."""
    return sum(-(-size // LINE) * LINE for size in sizes)
