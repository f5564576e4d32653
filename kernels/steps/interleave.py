"""`interleave`: take the rows of a k-block from several parts of the reduction."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tilewise.kernels.nest import Loop, LoopKind, Nest
from tilewise.kernels.steps.base import Part, Phase, Place, Step, register_step


@register_step
@dataclass(frozen=True)
class Interleave(Step):
    """Split the reduction in `streams` equal parts and reorder the parts inwards.

    Halide and TVM split of the reduction in parts, reordered inwards and unrolled.

        stream dim=k depth=8; register rows=1 cols=32; sweep dim=n; interleave dim=k streams=4
    before                          after
        for k step 8:                   for k step 8 of 4 streams:
            for n step 32:                  for n step 32:
                C += A * B                      C += A * B

    With one row from each part in a k-block, a part of B is read from its first byte to its last,
    which prefetchers follow best. What whole k-blocks leave of the reduction is at its end. The
    native lowering alone: loops and trips are the same, and a script says it in a comment.
    """

    name: ClassVar[str] = "interleave"
    place: ClassVar[Place] = Place.INTERLEAVE
    phase: ClassVar[Phase] = Phase.FINISH
    choices: ClassVar[tuple[str, ...]] = ("streams",)
    dim: str
    streams: int

    @classmethod
    def chosen(cls, choice: str, value: Any, part: Part) -> Iterable[Step]:
        """Return the step for several streams."""
        return [cls(part.nest.k, value)] if value > 1 else []

    def check(self, nest: Nest) -> None:
        """Raise unless each stream has the same number of rows of a sweep's k-block."""
        if not nest.is_skinny or not nest.k_block:
            raise self.refused(nest, "only the k-blocks of a skinny GEMM are interleaved")
        if self.dim != nest.k:
            raise self.refused(nest, f"interleave takes the reduction {nest.k}")
        rows = nest.k_block.step
        if self.streams < 2 or rows % self.streams:
            why = f"streams divide the {rows} rows of a k-block; give 2 or more that do"
            raise self.refused(nest, why)

    def apply(self, nest: Nest) -> Nest:
        """Set the streams of the k-block loop."""
        return nest.mapped(
            lambda n: (
                replace(n, streams=self.streams)
                if isinstance(n, Loop) and n.kind is LoopKind.K_BLOCK
                else n
            )
        )
