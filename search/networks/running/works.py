"""What is to do in a network, before there is memory: what each work reads, writes and calls."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.kernels.mlir.frontend.graph import Node
from tilewise.kernels.native.passes.passes import pass_of
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
        step: the same for another process; None where there is no telling.
        meets: whether it ends with all threads waiting for each other.
    """

    entry: int
    parameters: tuple[int, ...]
    kept: Any
    step: Step | None = None
    meets: bool = False


class Address(int):
    """An address in this process that says what lies there, for code that runs elsewhere."""

    word: At | Table

    @classmethod
    def of(cls, address: int, word: At | Table) -> "Address":
        """An address of something."""
        made = cls(address)
        made.word = word
        return made


def table_address(values: Array) -> Address:
    """The address of i64s that are only read; whoever passes it on keeps them alive."""
    return Address.of(values.ctypes.data, Table(tuple(values.tolist())))


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

    def address(self, buffer: int) -> Address:
        """Where a buffer begins."""
        return self.place(self.bytes_of(buffer).ctypes.data)

    def place(self, address: int) -> Address:
        """An address in one of the arenas, with where that is there."""
        found = self.within(address)
        if found is None:
            raise ValueError(f"{address:#x} is in no arena of the network")
        return Address.of(address, found)

    def within(self, address: int) -> At | None:
        """Where in the arenas an address is; None where it is elsewhere."""
        arenas: tuple[tuple[Area, Arena], ...] = (
            ("activations", self.activations), ("weights", self.weights),
        )  # fmt: skip
        offsets = [(area, address - arena.bytes.ctypes.data, len(arena.bytes))
                   for area, arena in arenas]  # fmt: skip
        inside = [At(area, at) for area, at, size in offsets if 0 <= at < size]
        ends = [At(area, at) for area, at, size in offsets if at == size]  # of an empty buffer
        return next(iter([*inside, *ends]), None)

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
    return part_call(found.entry, Pass(name), memory, ends, rows, more, (found, kept))


def part_call(
    entry: int, does: Parametric, memory: Memory, ends: tuple[int, int], rows: int,
    more: Sequence[int | float], kept: object,
) -> Call:  # fmt: skip
    """A function of a pass's parameters, as `rows_call`, by its address and by what it does."""
    words = [int(np.float64(one).view(np.int64)) if isinstance(one, float) else one for one in more]
    cuts = [rows * part // memory.threads for part in range(memory.threads + 1)]
    table = np.array([[*ends, *part, *words] for part in pairwise(cuts)], np.int64)
    addresses = tuple(row.ctypes.data for row in table)
    told = (tuple(map(word_of, (*ends, *part, *words))) for part in pairwise(cuts))
    return Call(entry, addresses, (table, kept), Step(does, tuple(told)))


def word_of(one: int) -> Word:
    """A parameter as another process has it."""
    return one.word if isinstance(one, Address) else int(one)
