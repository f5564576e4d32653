"""`split`: sum the reduction in partial sums."""

from collections.abc import Iterable
from typing import Any, ClassVar

from tilewise.kernels.nest import Compute, Nest
from tilewise.kernels.steps.base import Part, Place, Step, register_step

MOST_LANES = 256


@register_step
class Split(Step):
    """Sum the reduction in `lanes` partial sums, added up at the end: vectors along k.

    For results too narrow to fill a vector. Halide and TVM rfactor,
    transform structured.tile_reduction_using_for.

        split dim=k lanes=16
    before                          after
        C += A * B                      C += A * B  # in 16 partial sums

    The register tile's cols are then single columns. A lane may sum neighbours in pairs, where the
    processor has products of pairs.
    """

    name: ClassVar[str] = "split"
    place: ClassVar[Place] = Place.SPLIT
    choices: ClassVar[tuple[str, ...]] = ("lanes",)
    dim: str
    lanes: int

    @classmethod
    def chosen(cls, choice: str, value: Any, part: Part) -> Iterable[Step]:
        """Return the step for several lanes."""
        return [cls(part.nest.k, value)] if value > 1 else []

    def check(self, nest: Nest) -> None:
        """Raise unless it is a matmul's reduction, along which rows of A are contiguous."""
        if nest.group:
            raise self.refused(nest, "a group has too few channels to split; drop the step")
        if nest.image or nest.algorithm:
            raise self.refused(nest, "only a matmul's reduction is split; drop the step")
        if nest.problem.zero:
            raise self.refused(nest, "only packs subtract zero points; drop the step")
        if self.dim != nest.k:
            raise self.refused(nest, f"split takes the reduction {nest.k}")
        if not 2 <= self.lanes <= MOST_LANES:
            raise self.refused(nest, f"give lanes=2 to {MOST_LANES}")
        if nest.extent(nest.row) > 1 and not nest.operand("A").is_contiguous(nest.k):
            why = "it needs contiguous rows of A, and those of a transposed A are not, even packed"
            raise self.refused(nest, f"{why}; drop the step")

    def apply(self, nest: Nest) -> Nest:
        """Set the partial sums of the micro-kernel."""
        return nest.with_fields(Compute, lanes=self.lanes)
