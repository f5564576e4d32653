"""Loops that a nest leaves out, put back with one trip each: more nests then share a driver.

A search tries some twenty structures among its first sixty schedules, which are seven but for
the blocks that they cut or leave whole. A driver costs 30 ms of compiling, a loop of one trip
nothing beside the micro-kernels within, unless they are few and small.
"""

from dataclasses import replace
from math import prod

from tilewise.kernels.loopnest import Copy, Entry, Loop, Nest
from tilewise.kernels.problem.iteration import IterationSpace
from tilewise.kernels.schedule import Parallel, Stream, Tile

LEAST_WORK = 1 << 20
"""Multiply-adds. Loops of one trip cost up to 4% of 64^3 and of 32^3, and 9% of 16^3."""


def uniform(nest: Nest) -> Nest:
    """`nest` with a loop over blocks of each dim, in the order in which a search nests them.

        for n0: pack B, micro-tiles        for n0: for k0: pack B, for m0: micro-tiles

    One in another order, with two such loops over a dim, or with little to do stays as it is. So
    does one whose micro-kernel walks whole blocks.
    """
    if nest.kernel.walks or _work(nest.space) < LEAST_WORK:
        return nest
    places = _places(nest.space)
    blocks = [entry for entry in nest.entries if _name(entry)]
    order = [places.get(_name(entry), -1) for entry in blocks]
    if -1 in order or order != sorted(set(order)):
        return nest
    absent = [dim for dim in _blocked(nest.space) if places[dim] not in order]
    blocks += [_whole(nest.space, dim) for dim in absent]
    outside = [e for e in nest.entries if isinstance(e, Loop) and e.kind == Parallel.name]
    inside = nest.entries[len(outside) + len(order) :]
    blocks.sort(key=lambda entry: places[_name(entry)])
    return replace(nest, entries=(*outside, *blocks, *inside))


def _work(space: IterationSpace) -> int:
    """The multiply-adds of one visit of the dims that are visited one at a time."""
    inside = [extent for dim, extent in space.extents if dim not in space.singles]
    return prod(inside) * space.taps


def _places(space: IterationSpace) -> dict[str, int]:
    """The order of loops over blocks, by dim, and of packs, by operand."""
    col, stream, row = _blocked(space)
    images = [dim for dim in space.row_dims if dim not in (row, space.row)]
    names = [*space.lead, col, stream, "B", *images, row, "A"]
    return {name: place for place, name in enumerate(names)}


def _blocked(space: IterationSpace) -> tuple[str, str, str]:
    """The dims that a search cuts into blocks; of an image its lines."""
    return space.col, space.stream, "oh" if space.image == "A" else space.row


def _name(entry: Entry) -> str:
    """The dim of a loop over blocks, or the operand of a pack; empty for anything else."""
    if isinstance(entry, Copy):
        return entry.operand
    if isinstance(entry, Loop) and entry.kind in (Tile.name, Stream.name):
        return entry.dim
    return ""


def _whole(space: IterationSpace, dim: str) -> Loop:
    kind = Stream.name if dim == space.stream else Tile.name
    return Loop(dim, space.extent(dim), 1, kind)
