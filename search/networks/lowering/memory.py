"""The memory of a network: buffers for tensors and layouts, placed in one arena.

Offsets are found by first fit, largest buffer first, avoiding buffers with overlapping lifetimes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.kernels.mlir.frontend.graph import Size
from tilewise.kernels.oracle.operands import NUMPY_TYPES, poison
from tilewise.search.errors import NetworkError
from tilewise.search.networks.loader.network import Network, zeroed
from tilewise.search.networks.plan import Plan
from tilewise.search.networks.variants import TensorLayout

LINE = 64  # bytes


@dataclass(frozen=True)
class Lifetime:
    """The size of a buffer in bytes, and the first and last steps that use it."""

    size: int
    first: int
    last: int

    def meets(self, other: "Lifetime") -> bool:
        """Return whether two lifetimes overlap."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class PlacedBuffers:
    """Buffers in an arena."""

    lifetimes: tuple[Lifetime, ...]
    offsets: tuple[int, ...]
    size: int

    @property
    def apart(self) -> int:
        """Bytes of the buffers without sharing."""
        return sum(_rounded(one.size) for one in self.lifetimes)


def placed(lifetimes: Sequence[Lifetime]) -> PlacedBuffers:
    """Place buffers in an arena."""
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
    return PlacedBuffers(tuple(lifetimes), tuple(offsets), max(ends, default=0))


def _rounded(size: int) -> int:
    return -(-size // LINE) * LINE


Array = NDArray[Any]


class Arena:
    """Zeroed memory whose parts are arrays; a fork copies it."""

    def __init__(self, size: int) -> None:
        self.bytes: Array = zeroed(size)
        self._taken = 0

    @property
    def left(self) -> int:
        """Free bytes."""
        return len(self.bytes) - self._taken

    def part(self, offset: int, size: int) -> Array:
        """Return bytes at an offset."""
        return self.bytes[offset : offset + size]

    def take(self, size: int) -> Array:
        """Return the next bytes, aligned to a cache line."""
        found = self.part(self._taken, size)
        self._taken += _rounded(size)
        return found

    def keep(self, values: Array) -> Array:
        """Return a copy of an array in the arena."""
        held = self.take(values.nbytes).view(values.dtype).reshape(values.shape)
        held[...] = values
        return held


def arena_bytes(*sizes: int) -> int:
    """Return the bytes that `take` needs for parts of these sizes."""
    return sum(map(_rounded, sizes))


def poison_activations(network: Network) -> None:
    """Fill a network's activations with a pattern of no right result, except what is zero."""
    poison(network.activations[: network.about["barrier"]])
    for at, size in network.about["halos"]:
        network.activations[at : at + size] = 0


@dataclass
class Buffers:
    """Numbers of buffers by their content; `halos` have zeros that nothing overwrites."""

    plan: Plan
    sizes: list[int] = field(default_factory=list)
    halos: set[int] = field(default_factory=set)
    _of: dict[tuple[int, TensorLayout], int] = field(default_factory=dict)

    def of(self, tensor: int, layout: TensorLayout) -> int:
        """Return the buffer of a tensor in a layout."""
        if (tensor, layout) not in self._of:
            self._of[tensor, layout] = self.scratch(self._bytes(tensor, layout))
            if layout.halo:
                self.halos.add(self._of[tensor, layout])
        return self._of[tensor, layout]

    def known(self, tensor: int, layout: TensorLayout) -> int | None:
        """Return the buffer of a tensor in a layout, if it exists yet."""
        return self._of.get((tensor, layout))

    def made(self, tensor: int) -> int:
        """Return the buffer in which a tensor is made."""
        return self.of(tensor, self.plan.tensors[tensor].layout)

    def share(self, tensor: int, layout: TensorLayout, buffer: int) -> None:
        """Let a tensor use another's buffer."""
        self._of[tensor, layout] = buffer

    def scratch(self, size: int) -> int:
        """Return a buffer without a tensor."""
        self.sizes.append(size)
        return len(self.sizes) - 1

    def _bytes(self, tensor: int, layout: TensorLayout) -> int:
        shape = static(self.plan, tensor)
        halo = [2 * layout.halo if axis in layout.around else 0 for axis in range(len(shape))]
        size = np.dtype(type_of(self.plan, tensor)).itemsize
        return size * prod(n + more for n, more in zip(shape, halo, strict=True))


def static(plan: Plan, tensor: int) -> tuple[int, ...]:
    """Return the shape of a tensor; raise NetworkError if it is dynamic."""
    return sizes_of(tensor, plan.tensors[tensor].shape)


def sizes_of(tensor: int, shape: Sequence[Size]) -> tuple[int, ...]:
    """Return the shape in which a tensor is used; raise NetworkError if it is dynamic."""
    known = tuple(size for size in shape if size is not None)
    if len(known) != len(shape):
        raise NetworkError(f"tensor {tensor} has a dynamic shape; give --dim NAME=SIZE")
    return known


def type_of(plan: Plan, tensor: int) -> type:
    """Return NumPy's type of a tensor, bf16 as bits; raise NetworkError if there is none."""
    dtype = plan.tensors[tensor].dtype
    if dtype not in NUMPY_TYPES:
        raise NetworkError(f"tensor {tensor} is of {dtype}; {', '.join(NUMPY_TYPES)} are run here")
    return NUMPY_TYPES[dtype]
