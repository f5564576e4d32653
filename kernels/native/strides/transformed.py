"""Where transformed operands and their products lie."""

from dataclasses import replace

from tilewise.kernels.arithmetic import Arithmetic, size_of
from tilewise.kernels.loopnest import Nest
from tilewise.kernels.native.strides.lines import odd_lines
from tilewise.kernels.native.strides.records import Operand, PackedRows, Strides, Taps, Words
from tilewise.kernels.problem import Conv2d, Problem
from tilewise.kernels.steps.strassen import matrix_of


def transformed(nest: Nest, how: Arithmetic, b: Operand, taps: Taps) -> Strides:
    """Packed A are transformed tiles, and C are the products of the points."""
    shapes = {copy.operand: copy.shape for copy in nest.copies}
    _, tiles, depth = shapes["A"]
    size, cols = size_of(how.packed), nest.kernel.cols
    row = odd_lines(depth, size)
    return Strides(
        a=Operand({"t": 0}, stream=1),
        b=replace(b, dims=b.dims | {"point": odd_lines(depth * cols, size)}),
        c={"t": cols, "point": odd_lines(tiles * cols, size)},
        bias={nest.space.col: 1},
        packed_a=PackedRows({"t": row, "point": odd_lines(tiles * row, size)}, row),
        words=Words(row, 1, b_row=cols),
        taps=taps,
    )


def filter_in_place(problem: Conv2d) -> tuple[Operand, Taps]:
    """The filter in place, before its taps are transformed."""
    taps = Taps(b_source=problem.ci * problem.co, rows=problem.kh, cols=problem.kw)
    if problem.has_channels_first:
        count = problem.kh * problem.kw
        return Operand({"co": problem.ci * count}, stream=count, is_transposed=True), taps
    return Operand({"co": 1}, stream=problem.co), taps


def quadrants_in_place(problem: Problem, nest: Nest) -> tuple[Operand, Taps]:
    """B in place; a tap is a part of its columns."""
    _, cols, depth = matrix_of(problem)
    col = nest.space.col
    taps = Taps(b_source=nest.space.extent(col))
    if problem.has_transposed_b:
        return Operand({col: depth}, stream=1, is_transposed=True), taps
    return Operand({col: 1}, stream=cols), taps
