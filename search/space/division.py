"""Steps that divide a problem: among threads, and into equal blocks."""

import functools
from math import log

from tilewise.kernels.schedule import Parallel, Schedule, Tile, begin
from tilewise.kernels.steps.parallel import part_size
from tilewise.search.space.points import WHOLE, Point
from tilewise.search.space.workload import Workload


def parallel_steps(workload: Workload, point: Point, tail: Schedule) -> list[Parallel]:
    """The steps of a division, with no more parts of a dim than it has register tiles.

    Args:
        workload: what is divided.
        point: has the division.
        tail: the register step, and what follows it.
    """
    steps = []
    division = str(point.get("parallel", "none"))
    for dim, parts in (part.split("=") for part in division.split(",") if part != "none"):
        tiles = -(-workload.extents[dim] // begin(workload.problem, *tail.steps).unit(dim))
        if min(tiles, int(parts)) > 1:
            steps.append(Parallel(dim, min(tiles, int(parts))))
    return steps


def part_extents(workload: Workload, divided: list[Parallel], tail: Schedule) -> dict[str, int]:
    """The extents of one thread's part after the steps of a division."""
    extents = dict(workload.extents)
    for step in divided:
        unit = begin(workload.problem, *tail.steps).unit(step.dim)
        extents[step.dim] = part_size(extents[step.dim], step.parts, unit)
    return extents


def block_steps(dim: str, extents: dict[str, int], wanted: int, unit: int) -> list[Tile]:
    """Equal blocks of about `wanted`; no step where one block is all there is."""
    size = equal_block(extents[dim], wanted, unit)
    return [Tile(dim, size)] if size < extents[dim] else []


def balanced_chunk(extent: int, wanted: int, unit: int = 1) -> int:
    """The depth near `wanted` that cuts `extent` into equal chunks, the last a little shorter.

    A chunk is whole units, the elements that are multiplied at once.
    """
    if wanted == WHOLE or wanted >= extent:
        return extent
    chunks = max(1, round(extent / wanted))
    return min(extent, -(-extent // (chunks * unit)) * unit)


@functools.lru_cache(maxsize=4096)
def equal_block(extent: int, wanted: int, unit: int) -> int:
    """The multiple of `unit` near `wanted` that cuts the panels of `extent` into equal blocks."""
    panels = -(-extent // unit)
    if wanted == WHOLE or wanted >= extent:
        return panels * unit
    return unit * min(_divisors(panels), key=lambda d: abs(log(d * unit / wanted)))


@functools.lru_cache(maxsize=1024)
def _divisors(number: int) -> tuple[int, ...]:
    return tuple(d for d in range(1, number + 1) if number % d == 0)
