"""How often each thing happens in one run of a nest: micro-kernels, stages and their bytes.

Dims are independent, so a node's visits are a product over dims of how many blocks the loops
around it cut the dim into. Remainders make blocks of different lengths; a multiset of lengths per
dim keeps the count exact. Nothing here asks what kind of problem it is: a staged image's lines and
pixels come from its access.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tilewise.kernels.nest.access import Role
from tilewise.kernels.nest.nest import Nest, halo
from tilewise.kernels.nest.nodes import Compute, Layout, Loop, Node, Stage, Store

Lengths = Counter[int]


@dataclass(frozen=True)
class Counts:
    """Exact counts of one run; stages made ahead cost it nothing."""

    micro_kernels: int
    packs: dict[str, int]
    packed_bytes: dict[str, int]


def blocks_at(nest: Nest) -> Iterator[tuple[Node, dict[str, Lengths]]]:
    """Yield every node that is no loop with the blocks of every dim there."""
    yield from _cut(nest.body, {dim: Counter({size: 1}) for dim, size in nest.extents.items()})


def _cut(
    nodes: tuple[Node, ...], blocks: dict[str, Lengths]
) -> Iterator[tuple[Node, dict[str, Lengths]]]:
    for node in nodes:
        if not isinstance(node, Loop):
            yield node, blocks
            continue
        parts: Lengths = Counter()
        for length, times in blocks[node.dim].items():
            whole, rest = divmod(length, node.step)
            parts[node.step] += whole * times
            parts[rest] += times * (rest > 0)
        yield from _cut(node.body, blocks | {node.dim: +parts})


def visits(nest: Nest, blocks: dict[str, Lengths]) -> int:
    """Return how often a node with these blocks of every dim around it is executed."""
    taps = nest.named(Role.TAP)
    return prod(lengths.total() for dim, lengths in blocks.items() if dim not in taps)


def count(nest: Nest) -> Counts:
    """Return the counts of one run."""
    calls, packs, sizes = 0, dict[str, int](), dict[str, int]()
    size = nest.problem.element.bytes
    for node, blocks in blocks_at(nest):
        times = visits(nest, blocks)
        if isinstance(node, Compute):
            calls = times
        elif isinstance(node, Stage):
            packs[node.operand] = 0 if node.is_ahead else times
            elements = 0 if node.is_ahead else _elements(nest, node, blocks)
            sizes[node.operand] = elements * size
        elif isinstance(node, Store) and node.transforms:
            packs["C"] = times
            moved = [sum(n * t for n, t in blocks[d].items()) for d in blocks if d != nest.k]
            sizes["C"] = prod(moved[:-1]) * _to_panels(nest, blocks) * size
    return Counts(calls, packs, sizes)


def _to_panels(nest: Nest, blocks: dict[str, Lengths]) -> int:
    cols = nest.tile.cols
    return sum(-(-n // cols) * cols * t for n, t in blocks[nest.col].items())


def _elements(nest: Nest, stage: Stage, blocks: dict[str, Lengths]) -> int:
    """Elements that all executions of a stage write, with halo and filled-up panels."""
    total = nest.taps if stage.operand == "B" else 1
    moving = nest.operand(stage.operand).dims
    for dim, lengths in blocks.items():
        if nest.dim(dim).role is Role.TAP:
            continue
        if dim not in moving:
            total *= lengths.total()
        elif dim == nest.col:
            total *= _to_panels(nest, blocks)
        elif stage.layout is Layout.IMAGE and dim in nest.rows[1:]:
            at = nest.rows.index(dim) - 1  # the first one counts images
            ones = dict.fromkeys(nest.extents, 1)
            total *= sum(halo(nest, ones | {dim: n})[at] * t for n, t in lengths.items())
        else:
            total *= sum(n * t for n, t in lengths.items())
    return total
