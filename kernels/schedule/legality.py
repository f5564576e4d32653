"""Whether a schedule can be applied to a problem; if not, which step, to what, and why."""

from collections.abc import Callable

from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.problem.base import Problem
from tilewise.kernels.problem.iteration import IterationSpace, is_packed_ahead, is_packed_by_rows
from tilewise.kernels.problem.model import Conv2d
from tilewise.kernels.schedule.across_groups import check_across_groups
from tilewise.kernels.schedule.computing import check_instruction
from tilewise.kernels.schedule.fewer_products import POINT
from tilewise.kernels.schedule.model import Schedule
from tilewise.kernels.schedule.refusal import refuse
from tilewise.kernels.schedule.steps.algorithms import Strassen, Winograd
from tilewise.kernels.schedule.steps.base import Step
from tilewise.kernels.schedule.steps.copies import Pack, Prefetch
from tilewise.kernels.schedule.steps.loops import Parallel, Stream, Tile
from tilewise.kernels.schedule.steps.register import (
    Instruction,
    Interleave,
    Jam,
    Register,
    Split,
    Sweep,
    Unroll,
)
from tilewise.kernels.schedule.steps.retired import Retired
from tilewise.kernels.schedule.steps.stores import Nontemporal
from tilewise.kernels.schedule.sweeping import check_interleave, check_sweep
from tilewise.kernels.schedule.transformed import check_order, scheduled_space

_ENDINGS: list[list[type[Step]]] = [
    [], [Split], [Unroll], [Split, Unroll], [Jam], [Nontemporal], [Jam, Nontemporal], [Sweep],
    [Sweep, Interleave], [Unroll, Nontemporal],
]  # fmt: skip
LARGEST_UNROLL = 16
LARGEST_SPLIT = 256


def check_legal(problem: Problem, schedule: Schedule) -> None:
    """Raise unless `schedule` can be applied to `problem`.

    Raises:
        ScheduleError: names the step, the problem and the way out.
    """
    if schedule.is_for_iree:
        raise ScheduleError(
            f"{problem}: the steps are of IREE's own code, which no kernel or nest here has; "
            "give a schedule for a target cpu:NAME"
        )
    for step in schedule.steps:
        if isinstance(step, Retired):
            raise refuse(problem, step, "an earlier version had this step; search again")
    space = scheduled_space(problem, schedule)
    _check_ending(problem, schedule)
    if space.spans_groups:
        check_across_groups(problem, space, schedule)
    if schedule.transforms:
        check_order(problem, space, schedule)
    packed = _check_steps(problem, space, schedule)
    if not space.spans_groups and not schedule.transforms:
        _check_products(problem, space, schedule, packed)


def _check_steps(problem: Problem, space: IterationSpace, schedule: Schedule) -> set[str]:
    """Each step where it stands; the operands that were packed in the end."""
    wholes, blocks = dict(space.extents), dict(space.extents)
    packed: set[str] = set()
    for step in schedule.steps:
        if isinstance(step, Parallel):
            _check_parallel(problem, space, schedule, step)
            unit = tile_unit(space, schedule, step.dim)
            wholes[step.dim] = blocks[step.dim] = part_size(blocks[step.dim], step.parts, unit)
        elif isinstance(step, Tile):
            _check_tile(problem, space, schedule, (wholes, blocks), packed, step)
            blocks[step.dim] = step.size
        elif isinstance(step, Stream):
            _check_stream(problem, space, schedule, blocks, packed, step)
            blocks[step.dim] = step.depth
        elif isinstance(step, Pack):
            _check_pack(problem, space, blocks, packed, step)
            packed.add(step.operand)
        elif isinstance(step, Prefetch):
            _check_prefetch(problem, space, schedule, packed, step)
        elif check := _CHECKS.get(type(step)):
            check(problem, space, schedule, step)
    return packed


def _check_products(
    problem: Problem, space: IterationSpace, schedule: Schedule, packed: set[str]
) -> None:
    """What products of matrices, and convolutions that are such, need and cannot have."""
    for step in schedule.steps:
        if isinstance(step, Jam | Nontemporal):
            raise refuse(problem, step, "only where a group has few channels; drop the step")
    _check_batch(problem, space, schedule)
    if isinstance(problem, Conv2d) and problem.pad and space.image not in packed:
        raise ScheduleError(
            f"{problem}: pad={problem.pad} needs the image packed; "
            f"add the step pack operand={space.image}"
        )
    if space.patches and "B" not in packed:
        raise ScheduleError(f"{problem}: patches of the image are packed; add pack operand=B")


def part_size(extent: int, parts: int, unit: int) -> int:
    """The largest part of `extent` divided in `parts`, in whole units."""
    tiles = -(-extent // unit)
    return -(-tiles // parts) * unit


def tile_unit(space: IterationSpace, schedule: Schedule, dim: str) -> int:
    """What a part of `dim` is a multiple of: the register tile, a whole group, or one."""
    register = schedule.register
    units = {"co": space.group} if space.spans_groups else {}
    units |= {step.dim: step.factor for step in schedule.steps if isinstance(step, Jam)}
    units |= {space.row: register.rows, space.col: register.cols}
    return units.get(dim, 1)


def _check_parallel(
    problem: Problem, space: IterationSpace, schedule: Schedule, step: Parallel
) -> None:
    """Parallel steps come first, on different dims of the result, with a part for each thread."""
    at = schedule.steps.index(step)
    before = schedule.steps[:at]
    if not all(isinstance(s, Parallel | Winograd | Strassen) for s in before):
        raise refuse(problem, step, "parallel steps come before all others")
    if step.dim not in space.dims or step.dim == space.stream:
        dims = ", ".join(d for d in space.dims if d != space.stream)
        raise refuse(problem, step, f"parallel takes one of the dims {dims}")
    if any(isinstance(s, Parallel) and s.dim == step.dim for s in schedule.steps[at + 1 :]):
        raise refuse(problem, step, f"{step.dim} is divided once")
    unit = tile_unit(space, schedule, step.dim)
    tiles = -(-space.extent(step.dim) // unit)
    if not 2 <= step.parts <= tiles:
        raise refuse(problem, step, f"{step.dim} has {tiles} register tiles; give 2 to {tiles}")


def _check_ending(problem: Problem, schedule: Schedule) -> None:
    """Exactly one register step, then one of the endings that there are."""
    kinds = [type(step) for step in schedule.steps]
    if kinds.count(Register) != 1:
        raise ScheduleError(f"{problem}: a schedule has exactly one register step")
    tail = kinds[kinds.index(Register) + 1 :]
    if tail not in _ENDINGS or set().union(*_ENDINGS) & set(kinds[: kinds.index(Register)]):
        raise ScheduleError(
            f"{problem}: behind the register step come split and unroll, jam and nontemporal, or "
            "sweep and interleave, or unroll and nontemporal, each at most once, and in this order"
        )
    if schedule.unroll > LARGEST_UNROLL:
        raise ScheduleError(f"{problem}: unroll factor={schedule.unroll} is above {LARGEST_UNROLL}")


def _check_tile(
    problem: Problem,
    space: IterationSpace,
    schedule: Schedule,
    extents: tuple[dict[str, int], dict[str, int]],
    packed: set[str],
    step: Tile,
) -> None:
    """`extents` are those of a thread's part, and of the block that the steps before left."""
    wholes, blocks = extents
    if step.dim not in blocks or step.dim == space.stream:
        dims = ", ".join(d for d in space.dims if d != space.stream)
        raise refuse(problem, step, f"tile takes one of the dims {dims}")
    if step.size >= blocks[step.dim] and blocks[step.dim] != wholes[step.dim]:
        raise refuse(problem, step, f"the enclosing block is only {blocks[step.dim]}")
    unit = tile_unit(space, schedule, step.dim)
    if step.size % unit:
        raise refuse(problem, step, f"the size is not a multiple of the register tile's {unit}")
    if step.dim in space.singles:
        if step.size != 1:
            raise refuse(problem, step, f"{step.dim} is visited one at a time; give size=1")
        if packed & {name for name, dims in space.operand_dims.items() if step.dim in dims}:
            raise refuse(problem, step, "an operand that it moves is already packed")


def _check_stream(
    problem: Problem,
    space: IterationSpace,
    schedule: Schedule,
    blocks: dict[str, int],
    packed: set[str],
    step: Stream,
) -> None:
    if step.dim != space.stream:
        raise refuse(problem, step, f"stream takes the reduction {space.stream}")
    if sum(isinstance(s, Stream) for s in schedule.steps) > 1:
        raise refuse(problem, step, "the reduction is streamed on one level")
    if packed:
        raise refuse(problem, step, "an operand is already packed; stream before packing")
    if step.depth > blocks[step.dim]:
        raise refuse(problem, step, f"the reduction is only {blocks[step.dim]} deep")


def _check_pack(
    problem: Problem,
    space: IterationSpace,
    blocks: dict[str, int],
    packed: set[str],
    step: Pack,
) -> None:
    if step.operand in packed:
        raise refuse(problem, step, "it is already packed")
    dims = space.operand_dims[step.operand]
    for dim in space.singles:
        if dim in dims and blocks[dim] != 1 and dim != POINT:
            raise refuse(
                problem, step, f"one {dim} is packed at a time; put tile dim={dim} size=1 first"
            )


def _check_prefetch(
    problem: Problem, space: IterationSpace, schedule: Schedule, packed: set[str], step: Prefetch
) -> None:
    """B alone has a next block whose rows can be walked: cut by a loop, row by row.

    Panels that were packed ahead lie one behind the other, and need no loop. Of a B in place the
    block is what the loops before the step leave.
    """
    if schedule.steps.count(step) > 1:
        raise refuse(problem, step, "it is prefetched once")
    if space.spans_groups or schedule.sweeps or schedule.strassen:
        return  # what they prefetch is checked with them
    if step.operand != "B":
        raise refuse(problem, step, "only B is prefetched")
    if is_packed_ahead(problem, "B", space) and schedule.lanes == 1 and "B" in packed:
        return
    if not is_packed_by_rows(problem) or schedule.lanes > 1:
        raise refuse(problem, step, "B is not read row by row in a loop")
    packs_b = schedule.packs("B")
    if packs_b and "B" not in packed:
        raise refuse(problem, step, "it stands behind the pack of B")
    at, moves_b = schedule.steps.index(Pack("B") if packs_b else step), (space.col, space.stream)
    cut = [isinstance(s, Tile | Stream) and s.dim in moves_b for s in schedule.steps]
    if not any(cut[:at]):
        before = "the pack of B" if packs_b else "it"
        why = f"there is no next block; tile {space.col} or stream {space.stream} before {before}"
        raise refuse(problem, step, why)
    if not packs_b and any(cut[at:]):
        why = f"tile {space.col} and stream {space.stream} stand before it where B is in place"
        raise refuse(problem, step, why)


def _check_split(problem: Problem, space: IterationSpace, schedule: Schedule, step: Split) -> None:
    if isinstance(problem, Conv2d):
        raise refuse(problem, step, "only a matmul's reduction is split; drop the step")
    if step.dim != space.stream:
        raise refuse(problem, step, f"split takes the reduction {space.stream}")
    if not 2 <= step.lanes <= LARGEST_SPLIT:
        raise refuse(problem, step, f"give lanes=2 to {LARGEST_SPLIT}")
    is_read_across = space.extent(space.row) > 1 or schedule.packs("A")
    if problem.has_transposed_a and is_read_across:
        why = "it needs contiguous rows of A, and those of a transposed A are not, even packed"
        raise refuse(problem, step, f"{why}; drop the step")


def _check_batch(problem: Problem, space: IterationSpace, schedule: Schedule) -> None:
    for dim in space.lead:
        if Tile(dim, 1) not in schedule.steps:
            raise ScheduleError(
                f"{problem}: {dim} is visited one at a time; start with tile dim={dim} size=1"
            )


_CHECKS: dict[type[Step], Callable[..., None]] = {
    Instruction: check_instruction,
    Interleave: check_interleave,
    Split: _check_split,
    Sweep: check_sweep,
}
"""The checks of steps that leave blocks and packs as they are."""
