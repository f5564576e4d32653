"""How often each thing happens: packs and their bytes, calls of the micro-kernel.

Dims are independent, so an entry's visits are a product over dims of how many
blocks that dim has been cut into by the loops outside the entry. Remainders make
blocks of different lengths; a multiset of lengths per dim keeps the count exact.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tilewise.kernels.loopnest.nest import Copy, Entry, Loop, Nest, reach
from tilewise.kernels.problem.base import Problem
from tilewise.kernels.problem.iteration import is_packed_ahead
from tilewise.kernels.problem.model import Conv2d


@dataclass(frozen=True)
class Counts:
    """Exact counts for one execution of the nest.

    Attributes:
        micro_kernels: calls of the micro-kernel, edge tiles included.
        packs: executions of the pack of each operand; 0 for constant weights, packed ahead;
            of C, where its tiles are transformed from products.
        packed_bytes: bytes written by the packs of each operand, padding included.
    """

    micro_kernels: int
    packs: dict[str, int]
    packed_bytes: dict[str, int]


Lengths = Counter[int]
"""How many blocks of each length a dim has been cut into."""


def blocks_at(nest: Nest) -> Iterator[tuple[Entry, dict[str, Lengths]]]:
    """The entries that are no loops, each with the blocks of every dim there; outermost first."""
    blocks: dict[str, Lengths] = {d: Counter({e: 1}) for d, e in nest.space.extents}
    for entry in nest.entries:
        if isinstance(entry, Loop):
            blocks[entry.dim] = _cut(blocks[entry.dim], entry.step)
        else:
            yield entry, dict(blocks)


def _cut(lengths: Lengths, step: int) -> Lengths:
    out: Lengths = Counter()
    for length, times in lengths.items():
        whole, rest = divmod(length, step)
        if whole:
            out[step] += whole * times
        if rest:
            out[rest] += times
    return out


def count(problem: Problem, nest: Nest) -> Counts:
    """Count one execution of `nest`."""
    packs: dict[str, int] = {}
    packed_bytes: dict[str, int] = {}
    blocks: dict[str, Lengths] = {}
    for entry, blocks in blocks_at(nest):
        if isinstance(entry, Copy) and is_packed_ahead(problem, entry.operand, nest.space):
            packs[entry.operand] = packed_bytes[entry.operand] = 0
        elif isinstance(entry, Copy):
            packs[entry.operand] = _visits(blocks)
            packed_bytes[entry.operand] = _packed_bytes(problem, nest, blocks, entry.operand)
    return Counts(_visits(blocks), packs, packed_bytes)


def _visits(blocks: dict[str, Lengths]) -> int:
    return prod(lengths.total() for lengths in blocks.values())


def _packed_bytes(problem: Problem, nest: Nest, blocks: dict[str, Lengths], operand: str) -> int:
    """Sum of block sizes over the operand's dims, times visits through the other dims."""
    space, kernel = nest.space, nest.kernel
    total = problem.element.bytes * (space.taps if operand == "B" else 1)
    for dim, lengths in blocks.items():
        if dim not in _dims_of(nest, operand):
            total *= lengths.total()
        elif dim == space.col:
            total *= sum(-(-n // kernel.cols) * kernel.cols * t for n, t in lengths.items())
        elif isinstance(problem, Conv2d) and dim in ("oh", "ow"):
            taps = problem.kh if dim == "oh" else problem.kw
            total *= sum(reach(n, taps, problem) * t for n, t in lengths.items())
        else:
            total *= sum(n * t for n, t in lengths.items())
    return total


def _dims_of(nest: Nest, operand: str) -> frozenset[str]:
    """The dims of a copy: those of the operand; of products all but the reduction."""
    space = nest.space
    if operand == "C":
        return frozenset(space.dims) - {space.stream}
    return space.operand_dims[operand]
