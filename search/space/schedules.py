"""The schedule that a point of a workload's space means."""

from typing import Literal

from tilewise.kernels.arithmetic import must_pack
from tilewise.kernels.problem.iteration import is_packed_by_rows
from tilewise.kernels.schedule import (
    Interleave,
    Pack,
    Prefetch,
    Register,
    Schedule,
    Split,
    Step,
    Stream,
    Sweep,
    Tile,
    Unroll,
)
from tilewise.search.space.division import (
    balanced_chunk,
    block_steps,
    parallel_steps,
    part_extents,
)
from tilewise.search.space.methods.algorithms import step_of, transformed_schedule
from tilewise.search.space.points import Point, TilePoint
from tilewise.search.space.windows import window_schedule
from tilewise.search.space.workload import Workload


def schedule_of(workload: Workload, point: Point) -> Schedule:
    """The schedule that a point means; steps without effect are left out."""
    if workload.dims.spans_groups:
        return window_schedule(workload, point)
    if (method := step_of(point)) is not None:
        return transformed_schedule(workload, point, method)
    outer: Literal["cols", "rows"] = "cols" if point["outer"] == "cols" else "rows"
    tile: TilePoint = point["tile"]
    if tile.kind == "sweep":
        return _swept(workload, point, tile)
    register = Register(tile.rows, tile.cols(workload.lanes), outer)
    is_split = tile.kind == "split"
    if is_split:
        point = _packed_for_split(workload, point)
    steps = _outer_steps(workload, point, register)
    how = workload.split_arithmetic if is_split else workload.arithmetic
    steps += [*workload.instruction_steps(how), register]
    if is_split:
        steps.append(Split(workload.dims.stream, tile.partial_sums * workload.lanes))
    if int(point["unroll"]) > 1:
        steps.append(Unroll(int(point["unroll"])))
    return Schedule(tuple(steps))


def _swept(workload: Workload, point: Point, tile: TilePoint) -> Schedule:
    """The schedule of a swept tile; of other choices, blocks of columns and the prefetch count."""
    dims = workload.dims
    order: Literal["cols", "rows"] = "cols" if tile.rows == dims.extent(dims.row) else "rows"
    register = Register(tile.rows, tile.cols(workload.lanes), order)
    tail = Schedule((register,))
    divided = parallel_steps(workload, point, tail)
    extents = part_extents(workload, divided, tail)
    steps: list[Step] = [*divided, *(Tile(dim, 1) for dim in dims.lead)]
    steps += block_steps(dims.col, extents, int(point["cols"]), register.cols)
    steps.append(Stream(dims.stream, tile.depth))
    steps += [Prefetch("B")] if point.get("prefetch") else []
    steps += [*workload.instruction_steps(workload.swept_arithmetic), register, Sweep(dims.col)]
    steps += [Interleave(dims.stream, tile.streams)] if tile.streams > 1 else []
    return Schedule(tuple(steps))


def _packed_for_split(workload: Workload, point: Point) -> Point:
    """The point with the packs of a split tile, which reads both factors along the reduction.

    It reads A in place, and B where it can; no row of B's next block is fetched ahead.
    """
    packs_b = "B" in must_pack(workload.problem, workload.split_arithmetic)
    return point | {"pack_a": False, "pack_b": packs_b, "prefetch": False}


def part_of(workload: Workload, point: Point, register: Register) -> dict[str, int]:
    """The extents of one thread's part."""
    tail = Schedule((register,))
    return part_extents(workload, parallel_steps(workload, point, tail), tail)


def _outer_steps(workload: Workload, point: Point, register: Register) -> list[Step]:
    """All steps before the register tile, in the order of the loops."""
    tail = Schedule((register,))
    divided = parallel_steps(workload, point, tail)
    extents = part_extents(workload, divided, tail)
    steps: list[Step] = [*divided]
    steps += [Tile(dim, 1) for dim in workload.dims.lead]
    cols = block_steps(workload.dims.col, extents, int(point["cols"]), register.cols)
    chunks = _chunks(workload, int(point["depth"]))
    steps += [*chunks, *cols] if point.get("chunks") == "outer" else [*cols, *chunks]
    if point["pack_b"]:
        steps.append(Pack("B"))
    if point.get("prefetch") and _fetches_b(workload, point, moves=bool(cols or chunks)):
        steps.append(Prefetch("B"))
    if workload.dims.image == "A":
        steps.append(Tile("n", 1))
        steps += block_steps("oh", extents, int(point["image_rows"]), 1)
    else:
        steps += block_steps(workload.dims.row, extents, int(point["rows"]), register.rows)
    if point["pack_a"]:
        steps.append(Pack("A"))
    return steps


def _fetches_b(workload: Workload, point: Point, moves: bool) -> bool:
    """Whether B has a next block, or lies in panels, to be fetched."""
    if not point["pack_b"]:
        return moves and workload.has_blocks_ahead
    by_rows = moves and is_packed_by_rows(workload.problem)
    return (workload.stored["B"].is_packed_ahead or by_rows) and not workload.dims.patches


def _chunks(workload: Workload, wanted: int) -> list[Step]:
    extent = workload.extents[workload.dims.stream]
    depth = balanced_chunk(extent, wanted, workload.arithmetic.depth)
    return [Stream(workload.dims.stream, depth)] if depth < extent else []
