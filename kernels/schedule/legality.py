"""Whether a schedule can be applied to a problem; if not, which step, to what, and why."""

from kernels.errors import ScheduleError
from kernels.problem.iteration import IterationSpace, iteration_space
from kernels.problem.model import Conv2d, Problem
from kernels.schedule.model import Schedule
from kernels.schedule.steps import Pack, Register, Step, Stream, Tile, Unroll

LARGEST_UNROLL = 16


def check_legal(problem: Problem, schedule: Schedule) -> None:
    """Raise unless `schedule` can be applied to `problem`.

    Raises:
        ScheduleError: names the step, the problem and the way out.
    """
    space = iteration_space(problem)
    _check_ending(problem, schedule)
    blocks = dict(space.extents)
    packed: set[str] = set()
    for step in schedule.steps:
        if isinstance(step, Tile):
            _check_tile(problem, space, schedule.register, blocks, packed, step)
            blocks[step.dim] = step.size
        elif isinstance(step, Stream):
            _check_stream(problem, space, schedule, blocks, packed, step)
            blocks[step.dim] = step.depth
        elif isinstance(step, Pack):
            _check_pack(problem, space, blocks, packed, step)
            packed.add(step.operand)
    _check_batch(problem, space, schedule)
    if isinstance(problem, Conv2d) and problem.pad and space.image not in packed:
        raise ScheduleError(
            f"{problem}: pad={problem.pad} needs the image packed; "
            f"add the step pack operand={space.image}"
        )
    if space.patches and "B" not in packed:
        raise ScheduleError(f"{problem}: patches of the image are packed; add pack operand=B")


def _refuse(problem: Problem, step: Step, why: str) -> ScheduleError:
    return ScheduleError(f"step '{step}' cannot be applied to {problem}: {why}")


def _check_ending(problem: Problem, schedule: Schedule) -> None:
    """Exactly one register step, then at most one unroll, and nothing after."""
    kinds = [type(step) for step in schedule.steps]
    if kinds.count(Register) != 1:
        raise ScheduleError(f"{problem}: a schedule has exactly one register step")
    tail = kinds[kinds.index(Register) + 1 :]
    if tail not in ([], [Unroll]) or Unroll in kinds[: kinds.index(Register)]:
        raise ScheduleError(f"{problem}: only one unroll step may follow the register step")
    if schedule.unroll > LARGEST_UNROLL:
        raise ScheduleError(f"{problem}: unroll factor={schedule.unroll} is above {LARGEST_UNROLL}")


def _check_tile(
    problem: Problem,
    space: IterationSpace,
    register: Register,
    blocks: dict[str, int],
    packed: set[str],
    step: Tile,
) -> None:
    if step.dim not in blocks or step.dim == space.stream:
        dims = ", ".join(d for d in space.dims if d != space.stream)
        raise _refuse(problem, step, f"tile takes one of the dims {dims}")
    if step.size >= blocks[step.dim] and blocks[step.dim] != space.extent(step.dim):
        raise _refuse(problem, step, f"the enclosing block is only {blocks[step.dim]}")
    unit = {space.row: register.rows, space.col: register.cols}.get(step.dim, 1)
    if step.size % unit:
        raise _refuse(problem, step, f"the size is not a multiple of the register tile's {unit}")
    if step.dim in space.singles:
        if step.size != 1:
            raise _refuse(problem, step, f"{step.dim} is visited one at a time; give size=1")
        if packed & {name for name, dims in space.operand_dims.items() if step.dim in dims}:
            raise _refuse(problem, step, "an operand that it moves is already packed")


def _check_stream(
    problem: Problem,
    space: IterationSpace,
    schedule: Schedule,
    blocks: dict[str, int],
    packed: set[str],
    step: Stream,
) -> None:
    if step.dim != space.stream:
        raise _refuse(problem, step, f"stream takes the reduction {space.stream}")
    if sum(isinstance(s, Stream) for s in schedule.steps) > 1:
        raise _refuse(problem, step, "the reduction is streamed on one level")
    if packed:
        raise _refuse(problem, step, "an operand is already packed; stream before packing")
    if step.depth > blocks[step.dim]:
        raise _refuse(problem, step, f"the reduction is only {blocks[step.dim]} deep")


def _check_pack(
    problem: Problem,
    space: IterationSpace,
    blocks: dict[str, int],
    packed: set[str],
    step: Pack,
) -> None:
    if step.operand in packed:
        raise _refuse(problem, step, "it is already packed")
    dims = space.operand_dims[step.operand]
    for dim in space.singles:
        if dim in dims and blocks[dim] != 1:
            raise _refuse(
                problem, step, f"one {dim} is packed at a time; put tile dim={dim} size=1 first"
            )


def _check_batch(problem: Problem, space: IterationSpace, schedule: Schedule) -> None:
    for dim in space.lead:
        if Tile(dim, 1) not in schedule.steps:
            raise ScheduleError(
                f"{problem}: {dim} is visited one at a time; start with tile dim={dim} size=1"
            )
