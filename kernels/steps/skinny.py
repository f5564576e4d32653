"""`skinny`: visit all columns of a k-block inside the micro-kernel (skinny GEMM)."""

from collections.abc import Iterable
from typing import Any, ClassVar

from tilewise.kernels.instructions import Form, known_instruction
from tilewise.kernels.nest import LoopKind, Nest
from tilewise.kernels.steps.base import Part, Place, Step, register_step

MOST_ROWS_OF_B = 64  # side by side; the code has a pointer for each


@register_step
class Skinny(Step):
    """Move the loops over register tiles into the micro-kernel; sums stay in the first cache.

    Halide and TVM reorder of a reduction's loop outwards, with the result compute_at its block.

        stream dim=k depth=8; register rows=1 cols=32; skinny dim=n
    before                          after
        for k step 8:                   for k step 8:
            for n step 32:                  for n step 32:  # in the micro-kernel
                C += A * B                      C += A * B

    Rows of B are read in place, side by side, each from one end to the other. With `outer=rows` the
    register tile may have fewer rows than the result; the k-block of B is then read once for each.
    """

    name: ClassVar[str] = "skinny"
    json_name: ClassVar[str] = "sweep"
    place: ClassVar[Place] = Place.SKINNY
    choices: ClassVar[tuple[str, ...]] = ("skinny",)
    dim: str

    @classmethod
    def chosen(cls, choice: str, value: Any, part: Part) -> Iterable[Step]:
        """Return the step where it is wanted."""
        return [cls(part.nest.col)] if value else []

    def check(self, nest: Nest) -> None:
        """Raise unless rows of B can be read side by side, for one tile of rows after another."""
        b, rows = nest.operand("B"), nest.extent(nest.row)
        if nest.image or nest.algorithm or not b.is_contiguous(nest.col):
            raise self.refused(
                nest, "rows of B are not contiguous along n, or B is not a plain matrix"
            )
        if nest.compute.lanes > 1:
            raise self.refused(nest, "the reduction is split; drop one of the steps")
        if nest.problem.zero:
            raise self.refused(nest, "only packs subtract zero points; drop the step")
        if self.dim != nest.col:
            raise self.refused(nest, f"skinny takes the columns {nest.col}")
        if rows > 1 and not nest.operand("A").is_contiguous(nest.k):
            raise self.refused(nest, "rows of a transposed A are not contiguous")
        if nest.tile.rows > rows:
            raise self.refused(nest, f"there are {rows} rows; give rows={rows} or fewer")
        op = nest.compute.instruction
        if op is not None and Form.SKINNY not in known_instruction(op).forms:
            raise self.refused(nest, f"skinny GEMMs do not multiply by {op}; choose another")
        outermost = nest.loops_of(LoopKind.MICRO)[0].dim
        if nest.tile.rows < rows and outermost == nest.col:
            why = "columns are the innermost loop; give outer=rows, or all rows at once"
            raise self.refused(nest, why)

    def apply(self, nest: Nest) -> Nest:
        """Give the loops over register tiles to the micro-kernel."""
        return nest.with_fields(LoopKind.MICRO, in_kernel=True)
