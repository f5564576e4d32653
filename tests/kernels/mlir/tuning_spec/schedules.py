"""Configurations of specs for tests: plain sizes, whatever the problem."""

from tilewise.kernels.mlir.tuning_spec.config import Configuration, LevelName, TileSize
from tilewise.kernels.mlir.tuning_spec.form import form_of
from tilewise.kernels.problem import Problem


def plain(problem: Problem, *more: TileSize, rows: int = 8, cols: int = 32) -> Configuration:
    """A tile of vectors in whole rows and a few columns, and `more` levels."""
    form = form_of(problem)
    high, wide = min(rows, form.extent(form.rows)), min(cols, form.extent(form.cols))
    share = {form.rows: form.extent(form.rows), form.cols: min(2 * wide, form.extent(form.cols))}
    tile = {form.rows: high, form.cols: wide}
    tiles = [
        *_level("distribution", {loop: share.get(loop, 1) for loop in form.parallel}),
        *more,
    ]
    tiles += _level("vector_common_parallel", {loop: tile.get(loop, 1) for loop in form.parallel})
    depth = min(4, form.extent(form.depth))
    tiles += _level(
        "vector_reduction", {loop: depth if loop == form.depth else 1 for loop in form.reduction}
    )
    is_window = form.op == "convolution"
    passes = "ConvTileAndDecomposeExpert" if is_window else "DoubleTilingExpert"
    return Configuration(tuple(tiles), passes, "peeled")


def _level(at: LevelName, sizes: dict[str, int]) -> list[TileSize]:
    return [TileSize(at, name, size) for name, size in sizes.items()]
