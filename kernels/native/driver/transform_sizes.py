"""The values of the parameters of transforms: of tiles of pixels, and of groups of rows."""

from math import prod

from tilewise.kernels.loopnest import Nest
from tilewise.kernels.native.driver.parameters import (
    TRANSFORMED,
    ImageSizes,
    StridedRows,
    Transformed,
    TransformSizes,
    values_of,
)
from tilewise.kernels.native.strides import Strides
from tilewise.kernels.problem import Conv2d, Problem
from tilewise.kernels.problem.iteration import is_packed_ahead
from tilewise.kernels.steps.strassen import has_strided_rows, matrix_of
from tilewise.kernels.steps.transformed import POINT
from tilewise.kernels.steps.winograd import taps_of, tiles_of


def sizes_of_transforms(problem: Problem, nest: Nest, strides: Strides) -> dict[str, int]:
    """The parameters of a nest whose operands are transformed, by name."""
    sizes = values_of(_transformed(problem, nest, strides)) | {TRANSFORMED: 0}
    if _has_quadrants(problem):
        return sizes | values_of(*_groups_of_rows(problem, nest), *_strided_rows(problem))
    assert isinstance(problem, Conv2d)
    return sizes | values_of(_tiles_of_pixels(problem, nest, strides))


def bytes_of_transforms(problem: Problem, nest: Nest, strides: Strides) -> tuple[int, int]:
    """Tiles and products of a block; panels of the filter, and of one that is transposed first."""
    panels, panel = _panels_of_filter(problem, nest), _bytes_of_filter_panel(problem, nest, strides)
    turned = 0
    if strides.b.is_transposed:
        taps = strides.taps.rows * strides.taps.cols
        if _has_quadrants(problem):
            taps = prod(nest.space.tile)
        turned = taps * nest.kernel.depth * nest.kernel.cols
    of_tiles = sum(_bytes_of_tiles(problem, nest, strides))
    return of_tiles, panels * panel + turned * problem.element.bytes


def _has_quadrants(problem: Problem) -> bool:
    """Whether it is quadrants that are transformed: a filter of a single tap has no tiles."""
    return taps_of(problem) == (1, 1)


def _transformed(problem: Problem, nest: Nest, strides: Strides) -> Transformed:
    bytes_of_image, _ = _bytes_of_tiles(problem, nest, strides)
    panels, point = _panels_of_filter(problem, nest), strides.b.dims[POINT]
    return Transformed(
        image_point=strides.packed_a.dims[POINT],
        filter_point=point,
        product_point=strides.c[POINT],
        filter_panel=nest.space.extent(POINT) * point,
        products_at=bytes_of_image,
        turned_at=panels * _bytes_of_filter_panel(problem, nest, strides),
    )


def _tiles_of_pixels(problem: Conv2d, nest: Nest, strides: Strides) -> TransformSizes:
    height, width = nest.space.tile
    down, across = tiles_of(problem, nest.space.tile)
    planes = problem.has_channels_first
    ci, co = problem.ci, problem.co
    return TransformSizes(
        tile_height=height,
        tile_width=width,
        lines_down=height * problem.stride,
        pixels_across=width * problem.stride,
        tiles_down=down,
        tiles_across=across,
        out_height=problem.oh,
        out_width=problem.ow,
        image_size=problem.h * problem.w * problem.ci,
        image_line=problem.w * (1 if planes else ci),
        image_pixel=1 if planes else ci,
        image_channel=problem.h * problem.w if planes else 1,
        result_size=problem.oh * problem.ow * problem.co,
        result_line=problem.ow * (1 if planes else co),
        result_pixel=1 if planes else co,
        result_channel=problem.oh * problem.ow if planes else 1,
    )


def _groups_of_rows(problem: Problem, nest: Nest) -> tuple[TransformSizes, ImageSizes]:
    """An image whose pixels are parts of the reduction, and of the columns."""
    rows, cols, depth = matrix_of(problem)
    height, width = nest.space.tile
    tiles = TransformSizes(
        tile_height=height,
        tile_width=width,
        lines_down=height,
        pixels_across=width,
        tiles_down=nest.space.extent(nest.space.row),
        tiles_across=1,
        out_height=rows,
        out_width=width,
        image_size=prod(problem.operand_shapes["A"][-3:]),
        image_line=depth,
        image_pixel=depth // width,
        image_channel=1,
        result_size=rows * cols,
        result_line=cols,
        result_pixel=cols // width,
        result_channel=1,
    )
    image = ImageSizes(
        height=rows,
        width=width,
        channels=depth // width,
        conv_stride=1,
        pad=0,
        row_reach=1,
        packed_cols=0,
    )
    return tiles, image


def _strided_rows(problem: Problem) -> tuple[StridedRows, ...]:
    """Where they lie, if a stride leaves pixels out."""
    if not has_strided_rows(problem):
        return ()
    pixel = problem.stride * problem.ci
    line = problem.stride * problem.w * problem.ci
    return (StridedRows(problem.ow, problem.oh, row_pixel=pixel, row_line=line),)


def _bytes_of_tiles(problem: Problem, nest: Nest, strides: Strides) -> tuple[int, int]:
    """Of a block of transformed tiles, and of the products for a panel of the filter."""
    size = nest.space.extent(POINT) * problem.element.bytes
    return strides.packed_a.dims[POINT] * size, strides.c[POINT] * size


def _panels_of_filter(problem: Problem, nest: Nest) -> int:
    """How many lie in memory together: those of a block, or all where they are made ahead."""
    if is_packed_ahead(problem, "B", nest.space):
        return -(-nest.space.extent(nest.space.col) // nest.kernel.cols)
    return next(copy.shape[0] for copy in nest.copies if copy.operand == "B")


def _bytes_of_filter_panel(problem: Problem, nest: Nest, strides: Strides) -> int:
    return nest.space.extent(POINT) * strides.b.dims[POINT] * problem.element.bytes
