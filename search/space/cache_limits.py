"""What the caches can take. A search refuses schedules beyond that before they cost a trial."""

from math import ceil, prod

from tilewise.kernels.loopnest import Kernel, Nest, build
from tilewise.kernels.problem import Problem
from tilewise.kernels.problem.iteration import is_packed_ahead
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target.model import KIB, Target

MIN_SCRATCH_BYTES = 32 * KIB * KIB  # a packed block may take as much, however small the last cache
SHALLOW_DEPTH = 128  # elements; a reduction that is cut this short is not cut any shorter


def why_too_large(
    problem: Problem, target: Target, schedule: Schedule, operand: str = ""
) -> str | None:
    """Why the target's caches cannot take a legal schedule; None when they can.

    A packed block has to fit the last cache, because each block of the other operand reads it
    again. A panel of B that several tiles of rows read has to fit the second cache, unless the
    reduction is cut short already.

    Args:
        problem: what is computed.
        target: whose caches.
        schedule: legal on the problem.
        operand: look at what is held of this one alone; both if empty.
    """
    nest = build(problem, schedule)
    limit = max(target.l3_bytes, MIN_SCRATCH_BYTES)
    for copy in nest.copies:
        if is_packed_ahead(problem, copy.operand, nest.space):
            continue  # a model's weights are packed whole, and stay
        size = prod(copy.shape) * problem.element.bytes
        if size > limit and operand in ("", copy.operand):
            return (
                f"the packed block of {copy.operand} takes {size >> 20} MiB, "
                f"more than the {limit >> 20} MiB of the last cache"
            )
    return None if operand == "A" else _why_panel_too_large(problem, target, nest)


def _why_panel_too_large(problem: Problem, target: Target, nest: Nest) -> str | None:
    kernel: Kernel = nest.kernel
    if kernel.depth <= SHALLOW_DEPTH or kernel.lanes > 1:
        return None
    panel = kernel.cols * kernel.depth * kernel.taps * problem.element.bytes
    row_tiles = ceil(nest.space.extent(nest.space.row) / kernel.rows)
    if panel <= target.l2_bytes or row_tiles == 1:
        return None
    return (
        f"a panel of B takes {panel >> 10} KiB, more than the {target.l2_bytes >> 10} KiB "
        f"of the second cache; stream a reduction of less than {kernel.depth}"
    )
