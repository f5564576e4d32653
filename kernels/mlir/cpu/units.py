"""What a part of a dim is a multiple of, in the dims of a payload."""

from tilewise.kernels.problem.iteration import IterationSpace
from tilewise.kernels.schedule import Jam, Schedule


def tile_unit(space: IterationSpace, schedule: Schedule, dim: str) -> int:
    """Return the step of the loop over register tiles of a dim: the tile's, a group, or one."""
    register = schedule.register
    units = {"co": space.group} if space.spans_groups else {}
    units |= {step.dim: step.factor for step in schedule.steps if isinstance(step, Jam)}
    units |= {space.row: register.rows, space.col: register.cols}
    return units.get(dim, 1)
