"""The memory of a network: buffers for tensors and layouts, placed in one arena.

Offsets are found by first fit, the largest buffer first: each goes to the lowest place that no
buffer has that lives at some time when it does.
"""

import mmap
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.kernels.oracle.operands import NUMPY_TYPES
from tilewise.search.errors import NetworkError
from tilewise.search.networks.plan import Plan
from tilewise.search.networks.variants import Layout

LINE = 64  # bytes


@dataclass(frozen=True)
class Lifetime:
    """A buffer.

    Attributes:
        size: in bytes.
        first, last: the steps between which it holds something, both included.
    """

    size: int
    first: int
    last: int

    def meets(self, other: "Lifetime") -> bool:
        """Whether both live at some time."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Placed:
    """Buffers in an arena."""

    lifetimes: tuple[Lifetime, ...]
    offsets: tuple[int, ...]
    size: int

    @property
    def apart(self) -> int:
        """Bytes that the buffers would take if none shared memory with another."""
        return sum(_rounded(one.size) for one in self.lifetimes)


def placed(lifetimes: Sequence[Lifetime]) -> Placed:
    """An arena for buffers."""
    offsets = [0] * len(lifetimes)
    done: list[int] = []
    for number in sorted(range(len(lifetimes)), key=lambda i: -lifetimes[i].size):
        one = lifetimes[number]
        others = sorted((offsets[i], i) for i in done if lifetimes[i].meets(one))
        at = 0
        for begin, i in others:
            if at + _rounded(one.size) <= begin:
                break
            at = max(at, begin + _rounded(lifetimes[i].size))
        offsets[number] = at
        done.append(number)
    ends = [at + _rounded(one.size) for at, one in zip(offsets, lifetimes, strict=True)]
    return Placed(tuple(lifetimes), tuple(offsets), max(ends, default=0))


def _rounded(size: int) -> int:
    return -(-size // LINE) * LINE


Array = NDArray[Any]
_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
"""What is shared is also no memory of which Linux makes huge pages, unless it is told to."""


class Arena:
    """Zeroed memory, of which parts are arrays; a process that is forked off has a copy."""

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


@dataclass
class Buffers:
    """Numbers of buffers, by what lies in them.

    Attributes:
        sizes: of each buffer, in bytes.
        halos: buffers with zeros that nobody writes.
    """

    plan: Plan
    sizes: list[int] = field(default_factory=list)
    halos: set[int] = field(default_factory=set)
    _of: dict[tuple[int, Layout], int] = field(default_factory=dict)

    def of(self, tensor: int, layout: Layout) -> int:
        """The buffer of a tensor in a layout."""
        if (tensor, layout) not in self._of:
            self._of[tensor, layout] = self.scratch(self._bytes(tensor, layout))
            if layout.halo:
                self.halos.add(self._of[tensor, layout])
        return self._of[tensor, layout]

    def known(self, tensor: int, layout: Layout) -> int | None:
        """The buffer of a tensor in a layout, if it has one yet."""
        return self._of.get((tensor, layout))

    def made(self, tensor: int) -> int:
        """The buffer in which a tensor is made."""
        return self.of(tensor, self.plan.tensors[tensor].layout)

    def share(self, tensor: int, layout: Layout, buffer: int) -> None:
        """Let a tensor lie in a buffer that another one has had."""
        self._of[tensor, layout] = buffer

    def scratch(self, size: int) -> int:
        """A buffer for no tensor."""
        self.sizes.append(size)
        return len(self.sizes) - 1

    def _bytes(self, tensor: int, layout: Layout) -> int:
        shape = static(self.plan, tensor)
        halo = [2 * layout.halo if axis in layout.around else 0 for axis in range(len(shape))]
        size = np.dtype(type_of(self.plan, tensor)).itemsize
        return size * prod(n + more for n, more in zip(shape, halo, strict=True))


def static(plan: Plan, tensor: int) -> tuple[int, ...]:
    """The shape of a tensor.

    Raises:
        NetworkError: it is dynamic.
    """
    shape = plan.tensors[tensor].shape
    known = tuple(size for size in shape if size is not None)
    if len(known) != len(shape):
        raise NetworkError(f"tensor {tensor} has a dynamic shape; give the model static ones")
    return known


def type_of(plan: Plan, tensor: int) -> type:
    """NumPy's type of a tensor's elements; bf16 as its bits.

    Raises:
        NetworkError: there is none.
    """
    dtype = plan.tensors[tensor].dtype
    if dtype not in NUMPY_TYPES:
        raise NetworkError(f"tensor {tensor} is of {dtype}; {', '.join(NUMPY_TYPES)} are run here")
    return NUMPY_TYPES[dtype]
