"""The values of the parameters of transforms: of tiles of pixels, and of groups of rows."""

from math import prod

from tilewise.kernels.native.macrokernel.parameters import (
    TRANSFORMED,
    ImageSizes,
    StridedRows,
    Transformed,
    TransformSizes,
    values_of,
)
from tilewise.kernels.native.strides import Strides, is_of_quadrants, shape_of_stage
from tilewise.kernels.nest import Nest, nest_of
from tilewise.kernels.problem import Conv2d
from tilewise.kernels.steps.algorithm import POINT
from tilewise.kernels.steps.strassen import matrix_of
from tilewise.kernels.steps.winograd import WinogradTiles, tiles_of


def sizes_of_transforms(nest: Nest, strides: Strides) -> dict[str, int]:
    """Return the parameters of a nest whose operands are transformed, by name."""
    sizes = values_of(_transformed(nest, strides)) | {TRANSFORMED: 0}
    if is_of_quadrants(nest):
        return sizes | values_of(*_groups_of_rows(nest), *_strided_rows(nest))
    assert isinstance(nest.algorithm, WinogradTiles)
    return sizes | values_of(_tiles_of_pixels(nest.algorithm.problem, nest))


def bytes_of_transforms(nest: Nest, strides: Strides) -> tuple[int, int]:
    """Return the bytes of tiles and products of a block, and those of panels of B."""
    panels, panel = _panels_of_filter(nest), _bytes_of_filter_panel(nest, strides)
    turned = 0
    if strides.b.is_transposed:
        taps = strides.taps.rows * strides.taps.cols
        if is_of_quadrants(nest):
            taps = prod(_tile(nest))
        turned = taps * nest.depth * nest.tile.cols
    of_tiles = sum(_bytes_of_tiles(nest, strides))
    return of_tiles, panels * panel + turned * nest.problem.element.bytes


def _tile(nest: Nest) -> tuple[int, int]:
    assert nest.algorithm is not None
    return nest.algorithm.tile


def _transformed(nest: Nest, strides: Strides) -> Transformed:
    bytes_of_image, _ = _bytes_of_tiles(nest, strides)
    panels, point = _panels_of_filter(nest), strides.b.dims[POINT]
    return Transformed(
        image_point=strides.packed_a.dims[POINT],
        filter_point=point,
        product_point=strides.c[POINT],
        filter_panel=nest.extent(POINT) * point,
        products_at=bytes_of_image,
        turned_at=panels * _bytes_of_filter_panel(nest, strides),
    )


def _tiles_of_pixels(problem: Conv2d, nest: Nest) -> TransformSizes:
    height, width = _tile(nest)
    down, across = tiles_of(problem, (height, width))
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


def _groups_of_rows(nest: Nest) -> tuple[TransformSizes, ImageSizes]:
    """An image whose pixels are parts of the reduction, and of the columns."""
    problem, (height, width) = nest.problem, _tile(nest)
    rows, cols, depth = matrix_of(problem)
    tiles = TransformSizes(
        tile_height=height,
        tile_width=width,
        lines_down=height,
        pixels_across=width,
        tiles_down=nest.extent(nest.row),
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


def _strided_rows(nest: Nest) -> tuple[StridedRows, ...]:
    """Where they lie, if a stride leaves pixels out."""
    if nest.problem.stride == 1:
        return ()
    direct = nest_of(nest.problem)
    pixel, line = (direct.operand("A").stride(dim) or 0 for dim in ("ow", "oh"))
    return (StridedRows(direct.extent("ow"), direct.extent("oh"), row_pixel=pixel, row_line=line),)


def _bytes_of_tiles(nest: Nest, strides: Strides) -> tuple[int, int]:
    """Of a block of transformed tiles, and of the products for a panel of the filter."""
    size = nest.extent(POINT) * nest.problem.element.bytes
    return strides.packed_a.dims[POINT] * size, strides.c[POINT] * size


def _panels_of_filter(nest: Nest) -> int:
    """How many are in memory together: those of a block, or all where they are made ahead."""
    if nest.operand("B").is_constant:
        return -(-nest.extent(nest.col) // nest.tile.cols)
    return (shape_of_stage(nest, "B") or (0,))[0]


def _bytes_of_filter_panel(nest: Nest, strides: Strides) -> int:
    return nest.extent(POINT) * strides.b.dims[POINT] * nest.problem.element.bytes
