"""`k_streams`: take the rows of a k-block from several k-streams."""

from collections.abc import Iterable
from typing import Any, ClassVar

from tilewise.kernels.nest import LoopKind, Nest
from tilewise.kernels.steps.base import Part, Place, Step, register_step


@register_step
class KStreams(Step):
    """Read the reduction as `streams` interleaved k-streams: equal parts, a row of each in turn.

    Halide and TVM split of the reduction, the outer loop reordered inwards and unrolled.

        stream dim=k depth=8; register rows=1 cols=32; skinny dim=n; k_streams dim=k streams=4
    before                          after
        for k step 8:                   for k step 8 of 4 streams:
            for n step 32:                  for n step 32:
                C += A * B                      C += A * B

    With one row of each stream in a k-block, a stream of B is read from its first byte to its last,
    which prefetchers follow best. What whole k-blocks leave of the reduction is at its end. The
    native lowering alone: loops and trips are the same, and a script says it in a comment.
    """

    name: ClassVar[str] = "k_streams"
    json_name: ClassVar[str] = "interleave"
    place: ClassVar[Place] = Place.K_STREAMS
    choices: ClassVar[tuple[str, ...]] = ("streams",)
    dim: str
    streams: int

    @classmethod
    def chosen(cls, choice: str, value: Any, part: Part) -> Iterable[Step]:
        """Return the step for several streams."""
        return [cls(part.nest.k, value)] if value > 1 else []

    def check(self, nest: Nest) -> None:
        """Raise unless each stream has as many rows of a skinny GEMM's k-block."""
        if not nest.is_skinny or not nest.k_block:
            raise self.refused(nest, "only the k-blocks of a skinny GEMM are interleaved")
        if self.dim != nest.k:
            raise self.refused(nest, f"k_streams takes the reduction {nest.k}")
        rows = nest.k_block.step
        if self.streams < 2 or rows % self.streams:
            why = f"streams divide the {rows} rows of a k-block; give 2 or more that do"
            raise self.refused(nest, why)

    def apply(self, nest: Nest) -> Nest:
        """Set the streams of the k-block loop."""
        return nest.with_fields(LoopKind.K_BLOCK, streams=self.streams)
