"""What is to do in a network, before there is memory: what each work reads, writes and calls."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.kernels.mlir.frontend.graph import Node
from tilewise.kernels.native.passes.passes import pass_of
from tilewise.kernels.native.passes.rows.compiled import row_pass
from tilewise.kernels.native.programs.steps import Area, At, Parametric, Pass, Step, Table, Word
from tilewise.search.errors import NetworkError
from tilewise.search.networks.plan import PlannedNode
from tilewise.search.networks.running.memory import Arena, Placed

Array = NDArray[Any]


def refused(node: Node | PlannedNode, reason: str) -> NetworkError:
    """What is said of a node that does not run here."""
    place = node.where.rpartition(" ")[0]
    return NetworkError(f"{node.op} at {place} {reason}; `tilewise model` runs the whole model")


@dataclass(frozen=True)
class Call:
    """A function that each thread calls, with the addresses of parameters.

    Attributes:
        entry: the function's address.
        parameters: of each thread that calls it; the others wait.
        kept: what the addresses belong to.
        step: the same for another process; None of a barrier.
        meets: whether it ends with all threads waiting for each other.
    """

    entry: int
    parameters: tuple[int, ...]
    kept: Any
    step: Step | None = None
    meets: bool = False


@dataclass(frozen=True)
class Memory:
    """The memory of a network.

    Attributes:
        activations: whose parts are the buffers.
        placed: where those are.
        weights: for what stays.
    """

    activations: Arena
    placed: Placed
    weights: Arena
    threads: int

    def at(self, buffer: int) -> At:
        """Where a buffer begins."""
        return At("activations", self.placed.offsets[buffer])

    def place(self, address: int) -> At:
        """Where in the arenas an address is."""
        arenas: tuple[tuple[Area, Arena], ...] = (
            ("activations", self.activations), ("weights", self.weights),
        )  # fmt: skip
        offsets = [(area, address - arena.bytes.ctypes.data, len(arena.bytes))
                   for area, arena in arenas]  # fmt: skip
        inside = [At(area, at) for area, at, size in offsets if 0 <= at < size]
        ends = [At(area, at) for area, at, size in offsets if at == size]  # of an empty buffer
        found = next(iter([*inside, *ends]), None)
        if found is None:
            raise ValueError(f"{address:#x} is in no arena of the network")
        return found

    def address(self, at: At) -> int:
        """The address of a place in this process."""
        arena = self.activations if at.area == "activations" else self.weights
        return int(arena.bytes.ctypes.data) + at.offset

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


def table_of(values: Array) -> Table:
    """Numbers that a pass only reads."""
    return Table(tuple(values.tolist()))


def pass_call(
    does: Parametric, memory: Memory, ends: tuple[Word, Word], rows: int,
    more: Sequence[Word | float] = (),
) -> Call:  # fmt: skip
    """Return the call of a pass over rows, of which each thread has its part.

    Args:
        does: the pass.
        memory: of the network.
        ends: its source and its target.
        rows: how many there are.
        more: the other parameters; floats become the bits of an f64.
    """
    found = pass_of(does.name) if isinstance(does, Pass) else row_pass(does)
    words = [int(np.float64(one).view(np.int64)) if isinstance(one, float) else one for one in more]
    cuts = [rows * part // memory.threads for part in range(memory.threads + 1)]
    told = tuple((*ends, *part, *words) for part in pairwise(cuts))
    tables = list[Array]()

    def address(word: Word) -> int:
        if isinstance(word, At):
            return memory.address(word)
        if isinstance(word, Table):
            tables.append(np.array(word.words, np.int64))
            return int(tables[-1].ctypes.data)
        return word

    parameters = np.array([list(map(address, row)) for row in told], np.int64)
    addresses = tuple(row.ctypes.data for row in parameters)
    return Call(found.entry, addresses, (parameters, tables, found), Step(does, told))
