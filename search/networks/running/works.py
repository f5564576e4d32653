"""What is to do in a network, before there is memory: what each work reads, writes and calls."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.native.passes.passes import pass_of
from search.networks.running.arena import Arena
from search.networks.running.placing import Placed

Array = NDArray[Any]


@dataclass(frozen=True)
class Call:
    """A function that each thread calls, with the addresses of parameters.

    Attributes:
        entry: the function's address.
        parameters: of each thread that calls it; the others wait.
        kept: what the addresses belong to.
        meets: whether it ends with all threads waiting for each other.
    """

    entry: int
    parameters: tuple[int, ...]
    kept: Any
    meets: bool = False


@dataclass(frozen=True)
class Memory:
    """The memory of a network.

    Attributes:
        activations: whose parts are the buffers.
        placed: where those are.
        weights: for what stays.
        threads: that run it.
    """

    activations: Arena
    placed: Placed
    weights: Arena
    threads: int

    def address(self, buffer: int) -> int:
        """Where a buffer begins."""
        address: int = self.bytes_of(buffer).ctypes.data
        return address

    def bytes_of(self, buffer: int) -> Array:
        """The bytes of a buffer."""
        return self.activations.part(
            self.placed.offsets[buffer], self.placed.lifetimes[buffer].size
        )


@dataclass(frozen=True)
class Work:
    """Something to do.

    Attributes:
        label: of it, for people.
        node: the node that it belongs to; None for what a caller's argument needs.
        reads, writes: numbers of buffers; scratch memory is written.
        calls: what it calls, one after another, once there is memory.
        weights_bytes: that it takes of the arena of weights.
    """

    label: str
    node: int | None
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    calls: Callable[[Memory], list[Call]]
    weights_bytes: int = 0


def rows_call(
    name: str, memory: Memory, ends: tuple[int, int], rows: int, more: Sequence[int | float],
    kept: object = None,
) -> Call:  # fmt: skip
    """A pass over rows, of which each thread has its part.

    Args:
        name: of the pass.
        memory: of the network.
        ends: addresses of its source and its target.
        rows: how many there are.
        more: the other parameters; floats become the bits of an f64.
        kept: what addresses among them belong to.
    """
    found = pass_of(name)
    words = [int(np.float64(one).view(np.int64)) if isinstance(one, float) else one for one in more]
    cuts = [rows * part // memory.threads for part in range(memory.threads + 1)]
    table = np.array([[*ends, *part, *words] for part in pairwise(cuts)], np.int64)
    addresses = tuple(row.ctypes.data for row in table)
    return Call(found.entry, addresses, (found, table, kept))
