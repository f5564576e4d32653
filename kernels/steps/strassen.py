"""`strassen`: multiply sums of blocks, by fewer products."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

from tilewise.kernels.fast_algorithms import LEVELS, STRASSEN, BilinearAlgorithm
from tilewise.kernels.nest import Axis, Nest, Operand, Term, nest_of
from tilewise.kernels.problem import Problem
from tilewise.kernels.steps.algorithm import (
    POINT,
    TILES,
    AlgorithmStep,
    transformed_nest,
    why_no_algorithm,
)
from tilewise.kernels.steps.base import Part, Step, register_step

if TYPE_CHECKING:
    from tilewise.kernels.problem.keys import Array


@register_step
class Strassen(AlgorithmStep):
    """Compute a product of matrices from seven products of their blocks, where eight are usual.

    The method is Strassen's (`tilewise.kernels.fast_algorithms`); with `levels` 2 each of the seven
    products is made of seven likewise. It takes a matmul, or a convolution of single pixels with
    any stride, whose reduction and columns have halves, or quarters. The native lowering alone:
    upstream has no operation that adds blocks while it packs.

        strassen levels=1
        pack operand=B
        tile dim=t size=28
        pack operand=A
        register rows=7 cols=64 outer=cols
    before                          after
        for m, n:                       U[point][k/2][n/2] = sums of the blocks of B
            acc = 0                     for t0 in pairs of rows step 28:
            for k:                          V[point][t][k/2] = sums of the blocks of A
                acc += A * B                for n1 in step 64:
            C = acc                             for point in 7, t1 in step 7:
                                                    M[point][t1..][64] = V[point] * U[point]
                                                C = sums of M, bias and relu, for each t, n

    The schedule speaks of other dims from here on: `t` are groups of 2**levels rows, the columns
    and the reduction are parts of as many, and `point` the 7**levels products. Packing B and
    packing A add; both are needed. `prefetch operand=B` may follow the pack of B: panels are
    contiguous, whenever they were made. Rows that a last group lacks are zero, and are not
    written.

    Rounding is bounded by the magnitude of whole blocks, not of a row and a column, and a NaN or
    infinity spreads over its group of rows and to the other parts of the columns; problems with
    accuracy=strict refuse the step.
    """

    name: ClassVar[str] = "strassen"
    choices: ClassVar[tuple[str, ...]] = ("strassen",)
    matrices: ClassVar[BilinearAlgorithm] = STRASSEN
    levels: int

    @property
    def size(self) -> int:
        """Return the levels."""
        return self.levels

    @property
    def label(self) -> str:
        """Return what users read in tables."""
        return f"{self.name} {self.levels}"

    @classmethod
    def chosen(cls, choice: str, value: Any, part: Part) -> Iterable[Step]:
        """Return the step of a number of levels."""
        return [cls(value)]

    def check(self, nest: Nest) -> None:
        """Raise unless it is a product of matrices that can be cut so often."""
        why = why_not_strassen(nest.problem, self.levels)
        if why is not None:
            raise self.refused(nest, why)

    def apply(self, nest: Nest) -> Nest:
        """Return the nest of products of sums of blocks."""
        problem, parts = nest.problem, 2**self.levels
        (rows, cols, depth), (col, k) = matrix_of(problem), (nest.col, nest.k)
        extents = {
            POINT: self.matrices.products**self.levels,
            TILES: -(-rows // parts),
            col: cols // parts,
            k: depth // parts,
        }
        c = Operand("C", "C", (Axis(rows, ()), Axis(cols, (Term(col),))))
        stored = (nest.operand("A"), nest.operand("B"))
        blocks = StrassenBlocks(problem, self.levels, col, stored, self.matrices, self.name)
        return transformed_nest(nest, blocks, extents, c)


def matrix_of(problem: Problem) -> tuple[int, int, int]:
    """Return the rows and columns of the result, and the reduction."""
    nest = nest_of(problem)
    return prod(map(nest.extent, nest.rows)), nest.extent(nest.col), nest.extent(nest.k)


def why_not_strassen(problem: Problem, levels: int) -> str | None:
    """Return why a problem is no product that can be cut so often; None where it is one."""
    if levels not in LEVELS:
        return f"levels is one of {', '.join(map(str, LEVELS))}"
    why = why_no_algorithm(problem) or _why_no_matrix(problem)
    if why is not None:
        return why
    rows, cols, depth = matrix_of(problem)
    parts = 2**levels
    for what, extent in (("width", cols), ("reduction", depth)):
        if extent % parts:
            return f"its {what} of {extent} has no {parts} equal parts"
    if max(problem.strides) > 1 and parts > 2:  # any two rows are equally far apart, more are not
        line = problem.operand_shapes["C"][problem.spatial_axes[1]]
        if line % parts:
            return f"its lines of {line} strided pixels cut groups of {parts} rows"
    return f"it has fewer rows than {parts}" if rows < parts else None


def _why_no_matrix(problem: Problem) -> str | None:
    if problem.has_channels_first:
        return "layout=nchw_fchw has no rows of channels"
    if problem.window != (1, 1):
        return f"the filter is {'x'.join(map(str, problem.window))}, and not 1x1"
    for name, wanted in (("batch", 1), ("pad", 0), ("groups", 1)):
        found = getattr(problem, name, wanted)
        if found != wanted:
            return f"{name}={found} is not {wanted}"
    return "A is transposed" if problem.transpose_a else None


@dataclass(frozen=True)
class StrassenBlocks:
    """Sums of blocks of the operands of a matrix product, and of the products.

    Attributes:
        problem: that has the product.
        levels: how often operands are cut in halves.
        col: the dim of the columns.
        operands: A and B of the direct product.
        matrices: of the algorithm, for one level.
        name: of the step.
    """

    problem: Problem
    levels: int
    col: str
    operands: tuple[Operand, Operand]
    matrices: BilinearAlgorithm
    name: str
    tiles_pixels: ClassVar[bool] = False

    @property
    def tile(self) -> tuple[int, int]:
        """Return the rows of a group, and the parts of the columns."""
        return 2**self.levels, 2**self.levels

    @property
    def roundings(self) -> int:
        """Return the most roundings of a value in all transforms."""
        return self.matrices.roundings * self.levels

    def magnitudes(self) -> "StrassenBlocks":
        """Return the sums with the magnitudes of all coefficients."""
        return replace(self, matrices=self.matrices.magnitudes())

    def stored(self, role: str) -> Operand:
        """Return A or B of the direct product."""
        return self.operands["AB".index(role)]

    def stage(self, role: str, arrays: "Mapping[str, Array]", at: "Mapping[str, Array]") -> "Array":
        """Return sums of blocks of A, [point, t, k], or of B, [point, k, col]."""
        import numpy as np

        from tilewise.kernels.transforms import strassen_columns, strassen_rows

        if role == "B":
            b = arrays["B"].T if self.problem.transpose_b else arrays["B"]
            b = b.reshape(-1, self.problem.operand_shapes["C"][-1])
            return strassen_columns(self.matrices, self.levels, b, at[self.col])
        shape, group = self.problem.operand_shapes["C"][:-1], 2**self.levels
        row = at[TILES][:, None] * group + np.arange(group)
        first, *pixel = np.unravel_index(np.minimum(row, prod(shape) - 1), shape)
        moved = (by * i for by, i in zip(self.problem.strides, pixel, strict=False))  # or no pixel
        places = (np.where(row < prod(shape), first, -1), *moved)
        return strassen_rows(self.matrices, self.levels, arrays["A"], places)

    def combine(
        self, products: "Array", at: "Mapping[str, Array]"
    ) -> "Iterator[tuple[tuple[Array, ...], Array, Array]]":
        """Yield the rows and columns of C, and their sums."""
        from tilewise.kernels.transforms import strassen_results

        shape = self.problem.operand_shapes["C"]
        return strassen_results(
            self.matrices, self.levels, products, shape, at[TILES], at[self.col]
        )
