"""What the caches can take. A search refuses schedules beyond that before they cost a trial."""

from math import ceil, prod

from tilewise.kernels.nest import Nest, Stage, shape_of
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule, loop_nest
from tilewise.kernels.target.model import KIB, Target

MIN_SCRATCH_BYTES = 32 * KIB * KIB  # a packed block may take as much, however small the last cache
SHALLOW_DEPTH = 128  # elements; a reduction that is cut this short is not cut any shorter


def why_too_large(
    problem: Problem, target: Target, schedule: Schedule, operand: str = ""
) -> str | None:
    """Return why the target's caches cannot take a legal schedule; None when they can.

    A packed block has to fit the last cache, because each block of the other operand reads it
    again. A panel of B that several tiles of rows read has to fit the second cache, unless the
    reduction is cut short already.

    Args:
        problem: what is computed.
        target: whose caches.
        schedule: legal on the problem.
        operand: look at what is held of this one alone; both if empty.
    """
    nest = loop_nest(problem, schedule)
    limit = max(target.l3_bytes, MIN_SCRATCH_BYTES)
    for here in nest.visit():
        stage = here.node
        if not isinstance(stage, Stage) or stage.is_ahead:
            continue  # a model's weights are packed whole, and stay
        size = prod(shape_of(nest, here)) * problem.element.bytes
        if size > limit and operand in ("", stage.operand):
            return (
                f"the packed block of {stage.operand} takes {size >> 20} MiB, "
                f"more than the {limit >> 20} MiB of the last cache"
            )
    return None if operand == "A" else _why_panel_too_large(target, nest)


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
