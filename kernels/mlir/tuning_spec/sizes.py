"""The steps of a spec's schedule as IREE's attributes."""

from collections.abc import Sequence
from math import prod

from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.mlir.tuning_spec.form import Form
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.schedule.steps.levels import LEVELS, Level, LevelName, Pipeline

STACK_BYTES = 32768  # IREE's usual limit for a function's allocations
_BYTES = {"f32": 4, "f64": 8, "i32": 4}
_PARALLEL = ("distribution", "cache_parallel", "vector_common_parallel")


def compilation_info(form: Form, schedule: Schedule) -> str:
    """The attribute that gives an op of `form` the sizes of a schedule.

    Raises:
        ScheduleError: a step that is none of a spec's, or does not fit the form.
    """
    check_levels(form, schedule)
    levels = [
        f"{name} = {_sizes(form, tiles)}" for name in LEVELS if (tiles := tiles_of(schedule, name))
    ]
    pipeline = pipeline_of(schedule)
    peeled = ", {enable_loop_peeling}" if pipeline.remainders == "peeled" else ""
    return (
        "#iree_codegen.compilation_info<"
        f"lowering_config = #iree_cpu.lowering_config<{', '.join(levels)}>, "
        "translation_info = #iree_codegen.translation_info<"
        f"pipeline = #iree_cpu.pipeline<{pipeline.passes}>{peeled}>>"
    )


def around_config(form: Form, schedule: Schedule) -> str:
    """The attribute that has what is around an op done a tile of vectors at a time."""
    sizes = {tile.dim: tile.size for tile in tiles_of(schedule, "vector_common_parallel")}
    at = [sizes.get(loop.name, 1) for loop in form.parallel]
    return f"#iree_cpu.lowering_config<vector_inner_parallel = {at}>"


def outgrows_stack(form: Form, schedule: Schedule) -> bool:
    """Whether the sums between chunks of the reduction are more than IREE lets the stack hold."""
    if not tiles_of(schedule, "cache_reduction"):
        return False
    held = {loop.name: loop.extent for loop in form.parallel}
    levels: tuple[LevelName, ...] = ("distribution", "cache_parallel")
    for level in levels:
        held |= {tile.dim: tile.size for tile in tiles_of(schedule, level)}
    return prod(held.values()) * _BYTES[form.c_type] > STACK_BYTES


def tiles_of(schedule: Schedule, level: LevelName) -> list[Level]:
    """The tiles of one level, in the order of its loops."""
    return [step for step in schedule.steps if isinstance(step, Level) and step.at == level]


def pipeline_of(schedule: Schedule) -> Pipeline:
    """The pipeline; ScheduleError when there is not exactly one."""
    found = [step for step in schedule.steps if isinstance(step, Pipeline)]
    if len(found) != 1:
        raise ScheduleError(f"a spec's schedule has one pipeline step, not {len(found)}")
    return found[0]


def check_levels(form: Form, schedule: Schedule) -> None:
    """Raise unless each step is a spec's and names a loop that its level tiles, once.

    Raises:
        ScheduleError: names the step.
    """
    pipeline_of(schedule)
    seen = set[tuple[str, str]]()
    for step in schedule.steps:
        if isinstance(step, Pipeline):
            continue
        if not isinstance(step, Level):
            raise ScheduleError(f"step {step}: no step of a tuning spec; give level and pipeline")
        loops = form.parallel if step.at in _PARALLEL else form.reduction
        names = [loop.name for loop in loops]
        if step.dim not in names:
            raise ScheduleError(f"step {step}: {step.at} tiles {', '.join(names)}")
        if (step.at, step.dim) in seen:
            raise ScheduleError(f"step {step}: {step.dim} is tiled twice at this level")
        if step.size > form.extent(step.dim):
            raise ScheduleError(f"step {step}: {step.dim} has only {form.extent(step.dim)}")
        seen.add((step.at, step.dim))


def _sizes(form: Form, tiles: Sequence[Level]) -> str:
    """A list of sizes, 0 where a loop is not tiled; with its interchange where that matters."""
    at = {loop.name: number for number, loop in enumerate(form.loops)}
    sizes = [0] * len(at)
    for tile in tiles:
        sizes[at[tile.dim]] = tile.size
    order = [at[tile.dim] for tile in tiles]
    if order == sorted(order):
        return str(sizes)
    moved = iter(order)
    interchange = [next(moved) if number in order else number for number in range(len(at))]
    return f"{{sizes = {sizes}, interchange = {interchange}}}"
