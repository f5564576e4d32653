"""Linear maps of tiles by Winograd and Strassen: constant matrices applied to vectors.

Points of Winograd transforms come in pairs p and -p. Two rows for such a pair differ in the signs
of odd powers alone, and share the sum of the even and the sum of the odd terms; for two columns
that differ so, the terms' sum and difference replace both.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from llvmlite import ir

from tilewise.kernels.fast_algorithms import (
    BilinearAlgorithm,
    Matrix,
    WinogradTransforms,
    winograd_transforms,
)
from tilewise.kernels.native.ir.vectors import Value, Vectors

Shape = tuple[int, int]
Row = tuple[Fraction, ...]


@dataclass(frozen=True)
class LinearMap:
    """Emits `matrix` times vectors."""

    v: Vectors
    matrix: Matrix

    def __call__(self, values: Sequence[Value]) -> list[Value]:
        """Return one value for each row of the matrix."""
        rows, known = self._folded(self.matrix, list(values))
        done: dict[int, Value] = {}
        for i, row in enumerate(rows):
            if i in done:
                continue
            twin = next((j for j in range(i + 1, len(rows)) if _are_twins(row, rows[j])), None)
            if twin is None:
                done[i] = self._sum(row, known)
            else:
                done[i], done[twin] = self._pair(row, rows[twin], known)
        return [done[i] for i in range(len(rows))]

    def _folded(self, matrix: Matrix, values: list[Value]) -> tuple[list[Row], list[Value]]:
        """Return the same product, with sums and differences in place of twin columns."""
        columns = [tuple(column) for column in zip(*matrix, strict=True)]
        for i, one in enumerate(columns):
            for j in range(i + 1, len(columns)):
                if not _are_twins(one, columns[j]):
                    continue
                pairs = list(zip(one, columns[j], strict=True))
                values[i], values[j] = (
                    self.v.add(values[i], values[j]),
                    self.v.builder.fsub(values[i], values[j]),
                )
                columns[i] = tuple(x if x == y else Fraction(0) for x, y in pairs)
                columns[j] = tuple(x if x != y else Fraction(0) for x, y in pairs)
                break
        return list(zip(*columns, strict=True)), values

    def _pair(self, row: Row, twin: Row, values: Sequence[Value]) -> tuple[Value, Value]:
        """Return two rows of the same even terms and opposite odd ones."""
        even = tuple(x if x == y else Fraction(0) for x, y in zip(row, twin, strict=True))
        odd = tuple(x if x != y else Fraction(0) for x, y in zip(row, twin, strict=True))
        scale = next(x for x in reversed(odd) if x)
        evens = self._sum(even, values)
        odds = self._sum(tuple(x / scale for x in odd), values)
        return self._plus(evens, scale, odds), self._plus(evens, -scale, odds)

    def _sum(self, row: Row, values: Sequence[Value]) -> Value:
        """Return the sum of a row's terms, a term that needs no product first if there is one."""
        terms = [(x, value) for x, value in zip(row, values, strict=True) if x]
        terms.sort(key=lambda term: term[0] != 1)
        (factor, total), *rest = terms
        if factor != 1:
            total = self.v.builder.fmul(self._constant(factor), total)
        for factor, value in rest:
            total = self._plus(total, factor, value)
        return total

    def _plus(self, total: Value, factor: Fraction, value: Value) -> Value:
        if factor == 1:
            return self.v.add(total, value)
        if factor == -1:
            return self.v.builder.fsub(total, value)
        return self.v.multiply_add(self._constant(factor), value, total)

    def _constant(self, factor: Fraction) -> Value:
        return ir.Constant(self.v.type, [float(factor)] * self.v.lanes)


def _are_twins(one: Row, other: Row) -> bool:
    """Return whether two rows, or columns, are alike but for some signs."""
    pairs = [(x, y) for x, y in zip(one, other, strict=True) if x or y]
    alike = [x == y for x, y in pairs]
    return any(alike) and not all(alike) and all(abs(x) == abs(y) for x, y in pairs)


@dataclass(frozen=True)
class BothSides:
    """The product of `down`, a tile's values, and `across` transposed."""

    down: Matrix
    across: Matrix

    def columns(self, v: Vectors, rows: Iterable[list[Value]]) -> Iterator[list[Value]]:
        """Yield the product's columns, of the values in `rows`.

        Store each column before taking the next one, which frees its registers.
        """
        of_row, of_column = LinearMap(v, self.across), LinearMap(v, self.down)
        done = [of_row(row) for row in rows]
        for column in zip(*done, strict=True):
            yield of_column(list(column))


@dataclass(frozen=True)
class ToProducts:
    """A matrix times the quadrants of a square, and of each quadrant where there are two levels.

    Attributes:
        matrix: what each product has of the quadrants.
        levels: how often the square is cut; it has 2**levels values along each side.
    """

    matrix: Matrix
    levels: int

    def columns(self, v: Vectors, rows: Iterable[list[Value]]) -> Iterator[list[Value]]:
        """Yield the products, a line for each of the first level."""
        square = list(rows)
        places = _blocks(self.levels)
        grid = ([square[y][x] for y, x in line] for line in places)
        return _of_levels(self.matrix, self.levels).columns(v, grid)


@dataclass(frozen=True)
class FromProducts:
    """A square whose quadrants are a matrix times products, as `ToProducts` has them."""

    matrix: Matrix
    levels: int

    def columns(self, v: Vectors, rows: Iterable[list[Value]]) -> Iterator[list[Value]]:
        """Yield the square's columns."""
        grid = zip(*_of_levels(self.matrix, self.levels).columns(v, rows), strict=True)
        side, places = 2**self.levels, _blocks(self.levels)
        square: dict[tuple[int, int], Value] = {}
        for line, values in zip(places, grid, strict=True):
            square |= zip(line, values, strict=True)
        for x in range(side):
            yield [square[y, x] for y in range(side)]


def _of_levels(matrix: Matrix, levels: int) -> BothSides:
    """Return the map down for the first level, across for the second."""
    return BothSides(matrix, matrix if levels > 1 else ((Fraction(1),),))


def _blocks(levels: int) -> list[list[tuple[int, int]]]:
    """Return where each value of a square is: a line for each quadrant, one in it for its own."""
    halves = [(y, x) for y in range(2) for x in range(2)]
    if levels == 1:
        return [[place] for place in halves]
    return [[(2 * y + v, 2 * x + u) for v, u in halves] for y, x in halves]


TileMap = BothSides | ToProducts | FromProducts
"""A linear map of a tile."""


@dataclass(frozen=True)
class WinogradMethod:
    """Winograd transforms of a convolution.

    `image`, `filter` and `result` are, with the shapes that they take: the map of a tile of the
    image to left factors, of taps to right factors, and of products to a tile of the result.

    Attributes:
        output: pixels of a tile of the result along the filter.
        taps: of the filter, down and across.
        stride: of the filter.
        cuts_columns: whether the values of a line of the result are of different columns.
    """

    output: int
    taps: Shape
    stride: int
    cuts_columns: ClassVar[bool] = False

    @property
    def _transforms(self) -> WinogradTransforms:
        return winograd_transforms(self.output, self.taps, self.stride)

    @property
    def image(self) -> tuple[Shape, TileMap]:
        """Return both sides of a tile of pixels."""
        found = self._transforms
        return found.input, BothSides(found.down.image, found.across.image)

    @property
    def filter(self) -> tuple[Shape, TileMap]:
        """Return both sides of a filter."""
        found = self._transforms
        return self.taps, BothSides(found.down.filter, found.across.filter)

    @property
    def products(self) -> Shape:
        """Return the rows and columns that products are numbered in: the inputs of a tile."""
        return self._transforms.input

    @property
    def result(self) -> tuple[Shape, TileMap]:
        """Return both sides of the products."""
        found = self._transforms
        return found.output, BothSides(found.down.result, found.across.result)


@dataclass(frozen=True)
class StrassenMethod:
    """Strassen's products; the maps are those of `WinogradMethod`.

    Attributes:
        levels: how often operands are cut in halves.
        algorithm: of one level.
        cuts_columns: whether the values of a line of the result are of different columns.
    """

    levels: int
    algorithm: BilinearAlgorithm
    cuts_columns: ClassVar[bool] = True

    @property
    def _square(self) -> Shape:
        return 2**self.levels, 2**self.levels

    @property
    def image(self) -> tuple[Shape, TileMap]:
        """Return the map of a group of rows, in parts of the reduction."""
        return self._square, ToProducts(self.algorithm.image, self.levels)

    @property
    def filter(self) -> tuple[Shape, TileMap]:
        """Return the map of parts of the reduction, in parts of the columns."""
        return self._square, ToProducts(self.algorithm.filter, self.levels)

    @property
    def products(self) -> Shape:
        """Return the shape of the products: those of the first level one below the other."""
        return self.algorithm.products, self.algorithm.products ** (self.levels - 1)

    @property
    def result(self) -> tuple[Shape, TileMap]:
        """Return the map to a group of rows, in parts of the columns."""
        return self._square, FromProducts(self.algorithm.result, self.levels)


Method = WinogradMethod | StrassenMethod
"""Transforms of tiles of the image, of the filter, and of products to tiles of the result."""
