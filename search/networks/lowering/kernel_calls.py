"""Kernel calls of a network before memory is allocated, with the buffers that they use."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.kernels.mlir.frontend.graph import Node
from tilewise.kernels.native.programs.steps import Area, At, Parametric, ProgramStep, Table, Word
from tilewise.search.errors import NetworkError
from tilewise.search.networks.lowering.memory import Arena, PlacedBuffers
from tilewise.search.networks.plan import PlannedNode

Array = NDArray[Any]


def refused(node: Node | PlannedNode, reason: str) -> NetworkError:
    """Return the error of a node that cannot run here."""
    place = node.where.rpartition(" ")[0]
    return NetworkError(f"{node.op} at {place} {reason}; `tilewise model` runs the whole model")


@dataclass(frozen=True)
class Memory:
    """The arenas of a network: `activations` with its `placed` buffers, and `weights`."""

    activations: Arena
    placed: PlacedBuffers
    weights: Arena
    threads: int

    def at(self, buffer: int) -> At:
        """Return where a buffer begins."""
        return At("activations", self.placed.offsets[buffer])

    def place(self, address: int) -> At:
        """Return the place of an address in the arenas."""
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

    def bytes_of(self, buffer: int) -> Array:
        """Return the bytes of a buffer."""
        return self.activations.part(
            self.placed.offsets[buffer], self.placed.lifetimes[buffer].size
        )

    def parts(self, count: int) -> list[tuple[int, int]]:
        """Return the first element and the end of each thread's part."""
        return list(pairwise(count * part // self.threads for part in range(self.threads + 1)))


@dataclass(frozen=True)
class KernelCalls:
    """The kernel calls of a node, or of a copy.

    Attributes:
        node: its node; None for a copy of an argument.
        reads, writes: numbers of buffers; scratch is written.
        steps: its steps, once there is memory.
        weights_bytes: bytes that it takes of the weights' arena.
    """

    label: str
    node: int | None
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    steps: Callable[[Memory], list[ProgramStep]]
    weights_bytes: int = 0


def table_of(values: Array) -> Table:
    """Return numbers that a pass reads."""
    return Table(tuple(values.tolist()))


def pass_step(
    does: Parametric, memory: Memory, ends: tuple[Word, Word], rows: int,
    more: Sequence[Word | float] = (),
) -> ProgramStep:  # fmt: skip
    """Return a pass over `rows`, divided among the threads.

    `ends` are source and target, `more` its other parameters; floats are passed as bits of an f64.
    """
    words = [int(np.float64(one).view(np.int64)) if isinstance(one, float) else one for one in more]
    return ProgramStep(does, tuple((*ends, *part, *words) for part in memory.parts(rows)))
