"""`stream`: visit the reduction in k-blocks."""

from collections.abc import Iterable
from typing import Any, ClassVar

from tilewise.kernels.nest import Loop, LoopKind, Nest, Stage
from tilewise.kernels.steps.base import Part, Step, register_step
from tilewise.kernels.steps.skinny import MOST_ROWS_OF_B
from tilewise.kernels.steps.tile import check_fetched_block


@register_step
class Stream(Step):
    """Visit the reduction in k-blocks of `depth`; C holds partial sums between (BLIS's KC).

    Halide split of an RVar, TVM split of a reduce axis, tile_using_for on the reduction; MLIR-AIR's
    K-streaming.

        stream dim=k depth=256
    before                          after
        C += A * B  # over k            for k step 256:
                                            C += A * B  # over 256
    """

    name: ClassVar[str] = "stream"
    choices: ClassVar[tuple[str, ...]] = ("depth",)
    dim: str
    depth: int

    @classmethod
    def chosen(cls, choice: str, value: Any, part: Part) -> Iterable[Step]:
        """Return the step of a k-block that cuts the reduction; a skinny GEMM needs it."""
        nest = part.nest
        return [cls(nest.k, value)] if nest.is_skinny or value < part.extents[nest.k] else []

    def check(self, nest: Nest) -> None:
        """Raise unless it is the only loop over k-blocks, outside of all stages."""
        if nest.group:
            raise self.refused(nest, "a group has too few channels to stream; drop the step")
        if self.dim != nest.k:
            raise self.refused(nest, f"stream takes the reduction {nest.k}")
        if nest.k_block:
            raise self.refused(nest, "the reduction is streamed on one level")
        if any(nest.nodes(Stage)):
            raise self.refused(nest, "an operand is already packed; stream before packing")
        if self.depth > nest.extent(self.dim):
            raise self.refused(nest, f"the reduction is only {nest.extent(self.dim)} deep")
        if nest.is_skinny and self.depth > MOST_ROWS_OF_B:
            raise self.refused(nest, f"a skinny GEMM streams {nest.k} by at most {MOST_ROWS_OF_B}")
        check_fetched_block(self, nest, self.dim)

    def apply(self, nest: Nest) -> Nest:
        """Put a loop over the reduction around the macro-kernel."""
        return nest.around(Loop(self.dim, self.depth, LoopKind.K_BLOCK))
