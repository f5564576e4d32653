"""A configuration as IREE's attributes."""

from collections.abc import Sequence
from math import prod

from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.mlir.tuning_spec.config import LEVELS, Configuration, LevelName, TileSize
from tilewise.kernels.mlir.tuning_spec.form import Form

STACK_BYTES = 32768  # IREE's usual limit for a function's allocations
_BYTES = {"f32": 4, "f64": 8, "i32": 4}
_PARALLEL = ("distribution", "cache_parallel", "vector_common_parallel")


def compilation_info(form: Form, config: Configuration) -> str:
    """The attribute that gives an op of `form` the sizes of a configuration.

    Raises:
        ScheduleError: a tile does not fit the form.
    """
    check_levels(form, config)
    levels = [
        f"{name} = {_sizes(form, tiles)}" for name in LEVELS if (tiles := config.tiles_at(name))
    ]
    peeled = ", {enable_loop_peeling}" if config.remainders == "peeled" else ""
    return (
        "#iree_codegen.compilation_info<"
        f"lowering_config = #iree_cpu.lowering_config<{', '.join(levels)}>, "
        "translation_info = #iree_codegen.translation_info<"
        f"pipeline = #iree_cpu.pipeline<{config.passes}>{peeled}>>"
    )


def around_config(form: Form, config: Configuration) -> str:
    """The attribute that has what is around an op done a tile of vectors at a time."""
    sizes = {tile.dim: tile.size for tile in config.tiles_at("vector_common_parallel")}
    at = [sizes.get(loop.name, 1) for loop in form.parallel]
    return f"#iree_cpu.lowering_config<vector_inner_parallel = {at}>"


def outgrows_stack(form: Form, config: Configuration) -> bool:
    """Whether the sums between chunks of the reduction are more than IREE lets the stack hold."""
    if not config.tiles_at("cache_reduction"):
        return False
    held = {loop.name: loop.extent for loop in form.parallel}
    levels: tuple[LevelName, ...] = ("distribution", "cache_parallel")
    for level in levels:
        held |= {tile.dim: tile.size for tile in config.tiles_at(level)}
    return prod(held.values()) * _BYTES[form.c_type] > STACK_BYTES


def check_levels(form: Form, config: Configuration) -> None:
    """Raise unless each tile is of a loop that its level tiles, once.

    Raises:
        ScheduleError: names the tile.
    """
    seen = set[tuple[str, str]]()
    for tile in config.tiles:
        loops = form.parallel if tile.at in _PARALLEL else form.reduction
        names = [loop.name for loop in loops]
        if tile.dim not in names:
            raise ScheduleError(f"step {tile}: {tile.at} tiles {', '.join(names)}")
        if (tile.at, tile.dim) in seen:
            raise ScheduleError(f"step {tile}: {tile.dim} is tiled twice at this level")
        if not 1 <= tile.size <= form.extent(tile.dim):
            raise ScheduleError(f"step {tile}: give a size of 1 to {form.extent(tile.dim)}")
        seen.add((tile.at, tile.dim))


def _sizes(form: Form, tiles: Sequence[TileSize]) -> str:
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
