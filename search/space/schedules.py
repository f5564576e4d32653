"""The schedule of a point, and whether it fits the caches.

A point is resolved to what its kind of kernel makes of each parameter. The steps say what that is
in a schedule (`tilewise.kernels.schedule.chosen`). Choices without effect make no step.
"""

from collections.abc import Mapping
from math import ceil, prod
from typing import Any

from tilewise.kernels.arithmetic import Arithmetic, WeightOnly, WidenedWeights, must_pack
from tilewise.kernels.block_sizes import balanced_depth
from tilewise.kernels.instructions import Form
from tilewise.kernels.nest import Nest, Stage, shape_of
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule, chosen, has_choice, loop_nest
from tilewise.kernels.target.model import KIB, Target
from tilewise.search.space.algorithms import (
    ALGORITHM,
    DIRECT,
    PAST_CACHES,
    WANTED,
    algorithm_of,
    channels_of,
    fetches_panels,
    nest_of_algorithm,
)
from tilewise.search.space.points import Point, TilePoint
from tilewise.search.space.workload import Workload
from tilewise.search.space.workload_parameters import jammed_lines

Choices = Mapping[str, Any]
"""What is chosen for the steps of a schedule, in their order."""

MIN_SCRATCH_BYTES = 32 * KIB * KIB  # a packed block may take as much, however small the last cache
SHALLOW_DEPTH = 128  # elements; a reduction that is cut this short is not cut any shorter


def schedule_of(workload: Workload, point: Point) -> Schedule:
    """Return the schedule that a point means."""
    if algorithm_of(point):  # which takes the place of the step `fuse`
        choices = _transformed(workload, point)
        return Schedule(tuple(chosen(workload.fused or workload.problem, choices).steps))
    if workload.nest.group:
        choices = _depthwise(workload, point)
    elif point["tile"].kind == "sweep":
        choices = _skinny(workload, point)
    else:
        choices = _direct(workload, point)
    fuses = workload.fused is not None
    return Schedule(tuple(chosen(workload.problem, {"fuse": fuses, **choices}).steps))


def part_of(workload: Workload, point: Point, rows: int, cols: int) -> dict[str, int]:
    """Return the extents of one thread's part, for a register tile of `rows` by `cols`."""
    algorithm, division = algorithm_of(point), _division(point)
    if division["parallel"] == "none":  # a register tile alone leaves the extents as they are
        return nest_of_algorithm(workload.problem, str(point.get(ALGORITHM, DIRECT))).extents
    choices = {**algorithm, **division, "register": (rows, cols)}
    return chosen(workload.problem, choices).extents


def _direct(workload: Workload, point: Point) -> Choices:
    """Outer products of packed panels, or sums that are split along the reduction."""
    tile: TilePoint = point["tile"]
    is_split, is_image = tile.kind == "split", workload.nest.image == "A"
    how = workload.arithmetic_of(tile.kind)
    forced = must_pack(workload.problem, how)
    packs_a, packs_b = (bool(point[f"pack_{x.lower()}"]) or x in forced for x in "AB")
    fetches = bool(point.get("prefetch"))
    widens = isinstance(how, WidenedWeights)  # a panel once, for all calls in a row that read it
    if is_split:  # which reads A in place, and B where it can
        packs_a, packs_b, fetches = False, "B" in forced, False
    by_rows = workload.b.is_constant or workload.packs_rows_of_b
    depth = balanced_depth(workload.depth, int(point["depth"]), unit_of_depth(how))
    blocks = {"cols": point["cols"], "depth": depth}
    if point.get("chunks") == "outer":
        blocks = dict(reversed(blocks.items()))
    rows = "image_rows" if is_image else "rows"
    return {
        **_division(point),
        "lead": True,
        **blocks,
        "pack_b": packs_b,
        "prefetch": fetches and (by_rows if packs_b else workload.has_blocks_ahead),
        rows: point[rows],
        "pack_a": packs_a,
        **_instruction(workload, how),
        **_register(workload, point, "cols" if widens else point["outer"]),
        "lanes": tile.partial_sums * workload.lanes,
        "unroll": point["unroll"],
    }


def unit_of_depth(how: Arithmetic) -> int:
    """Return the elements of the reduction that k-blocks are multiples of."""
    return how.depth * (1 if isinstance(how, WeightOnly) else how.instruction.words)


def _skinny(workload: Workload, point: Point) -> Choices:
    """A skinny GEMM; of other parameters, blocks of columns and the prefetch count."""
    tile: TilePoint = point["tile"]
    return {
        **_division(point),
        "lead": True,
        "cols": point["cols"],
        "depth": tile.depth,
        "prefetch": point.get("prefetch"),
        **_instruction(workload, workload.skinny_arithmetic),
        **_register(workload, point, "cols" if tile.rows == workload.rows else "rows"),
        "skinny": True,
        "streams": tile.streams,
    }


def _transformed(workload: Workload, point: Point) -> Choices:
    """An algorithm of fewer products."""
    return {
        **algorithm_of(point),
        **_division(point),
        "cols": point[channels_of(workload)],
        "pack_b": True,
        "prefetch": point.get("prefetch") and fetches_panels(workload),
        "rows": point[WANTED],
        "pack_a": True,
        **_register(workload, point, "cols"),
        "unroll": point["unroll"],
        "nontemporal": point.get(PAST_CACHES),
    }


def _depthwise(workload: Workload, point: Point) -> Choices:
    """A convolution with few channels in a group."""
    return {
        **_division(point),
        "image_rows": point["image_rows"],
        "cols": point["cols"],
        **_register(workload, point, point["outer"]),
        "lines": jammed_lines(workload, point["tile"], point["lines"]),
        "nontemporal": point["nontemporal"],
    }


def _division(point: Point) -> Choices:
    return {"parallel": point.get("parallel", "none")}


def _register(workload: Workload, point: Point, outer: str) -> Choices:
    tile = point["tile"]
    return {"register": (tile.rows, tile.cols(workload.lanes), outer)}


def _instruction(workload: Workload, how: Arithmetic) -> Choices:
    """The instruction, where processors have several for the type."""
    named = has_choice(workload.problem) or how.instruction.accuracy or how.form is Form.TILES
    return {"instruction": how.instruction.name if named else ""}


def why_too_large(problem: Problem, target: Target, schedule: Schedule) -> str | None:
    """Return why the target's caches cannot take a legal schedule; None when they can.

    A packed block has to fit the last cache, because each block of the other operand reads it
    again. A panel of B that several tiles of rows read has to fit the second cache, unless the
    reduction is cut short already.
    """
    nest = loop_nest(problem, schedule)
    limit = max(target.l3_bytes, MIN_SCRATCH_BYTES)
    for here in nest.visit():
        stage = here.node
        if not isinstance(stage, Stage) or stage.is_ahead:
            continue  # a model's weights are packed whole, and stay
        size = prod(shape_of(nest, here)) * problem.element.bytes
        if size > limit:
            return (
                f"the packed block of {stage.operand} takes {size >> 20} MiB, "
                f"more than the {limit >> 20} MiB of the last cache"
            )
    return _why_panel_too_large(target, nest)


def _why_panel_too_large(target: Target, nest: Nest) -> str | None:
    depth, tile = nest.depth, nest.tile
    if depth <= SHALLOW_DEPTH or nest.compute.lanes > 1:
        return None
    panel = tile.cols * depth * nest.taps * nest.problem.element.bytes
    row_tiles = ceil(nest.extent(nest.row) / tile.rows)
    if panel <= target.l2_bytes or row_tiles == 1:
        return None
    return (
        f"a panel of B takes {panel >> 10} KiB, more than the {target.l2_bytes >> 10} KiB "
        f"of the second cache; stream a reduction of less than {depth}"
    )
