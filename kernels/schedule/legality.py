"""Whether a schedule can be applied to a problem; if not, which step, to what, and why."""

from kernels.errors import ScheduleError
from kernels.problem.iteration import IterationSpace, iteration_space
from kernels.problem.model import Conv2d, Problem
from kernels.schedule.model import Schedule
from kernels.schedule.steps import Pack, Register, Split, Step, Stream, Tile, Unroll

LARGEST_UNROLL = 16
LARGEST_SPLIT = 256


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
        elif isinstance(step, Split):
            _check_split(problem, space, step)
    _check_batch(problem, space, schedule)
    if isinstance(problem, Conv2d) and problem.pad and "A" not in packed:
        raise ScheduleError(
            f"{problem}: pad={problem.pad} needs the image packed; add the step pack operand=A"
        )


def _refuse(problem: Problem, step: Step, why: str) -> ScheduleError:
    return ScheduleError(f"step '{step}' cannot be applied to {problem}: {why}")


def _check_ending(problem: Problem, schedule: Schedule) -> None:
    """Exactly one register step, then at most one split and one unroll, and nothing after."""
    kinds = [type(step) for step in schedule.steps]
    if kinds.count(Register) != 1:
        raise ScheduleError(f"{problem}: a schedule has exactly one register step")
    tail = kinds[kinds.index(Register) + 1 :]
    endings: list[list[type[Step]]] = [[], [Split], [Unroll], [Split, Unroll]]
    if tail not in endings or {Split, Unroll} & set(kinds[: kinds.index(Register)]):
        raise ScheduleError(
            f"{problem}: only one unroll step may follow the register step, "
            "and one split step between them"
        )
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
    if step.dim in (space.batch, space.row_dims[0]) and step.dim not in (space.row, space.col):
        if step.size != 1:
            raise _refuse(problem, step, f"{step.dim} is visited one at a time; give size=1")
        if packed & ({"A", "B"} if step.dim == space.batch else {"A"}):
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
    single = [space.batch, space.row_dims[0] if len(space.row_dims) > 1 else None]
    for dim in single:
        if dim in dims and blocks[dim] != 1:
            raise _refuse(
                problem, step, f"one {dim} is packed at a time; put tile dim={dim} size=1 first"
            )


def _check_split(problem: Problem, space: IterationSpace, step: Split) -> None:
    if isinstance(problem, Conv2d):
        raise _refuse(problem, step, "only a matmul's reduction is split; drop the step")
    if step.dim != space.stream:
        raise _refuse(problem, step, f"split takes the reduction {space.stream}")
    if not 2 <= step.lanes <= LARGEST_SPLIT:
        raise _refuse(problem, step, f"give lanes=2 to {LARGEST_SPLIT}")


def _check_batch(problem: Problem, space: IterationSpace, schedule: Schedule) -> None:
    if space.batch and Tile(space.batch, 1) not in schedule.steps:
        raise ScheduleError(
            f"{problem}: every operand has the dim {space.batch}; "
            f"start with tile dim={space.batch} size=1"
        )
