"""`unroll`: unroll the micro-kernel's reduction loop."""

from collections.abc import Iterable
from typing import Any, ClassVar

from tilewise.kernels.nest import Compute, Nest
from tilewise.kernels.steps.base import Part, Place, Step, register_step

MOST = 16


@register_step
class Unroll(Step):
    """Unroll the micro-kernel's reduction loop. Halide unroll, TVM unroll, loop.unroll.

        unroll factor=4
    before                          after
        C += A * B                      C += A * B  # unrolled 4
    """

    name: ClassVar[str] = "unroll"
    place: ClassVar[Place] = Place.UNROLL
    choices: ClassVar[tuple[str, ...]] = ("unroll",)
    factor: int

    @classmethod
    def chosen(cls, choice: str, value: Any, part: Part) -> Iterable[Step]:
        """Return the step for several iterations."""
        return [cls(value)] if value > 1 else []

    def check(self, nest: Nest) -> None:
        """Raise where the micro-kernel has no loop of its own over the reduction."""
        if nest.group:
            raise self.refused(nest, "the filter's taps are unrolled as they are; drop the step")
        if nest.is_skinny:
            raise self.refused(nest, "a skinny GEMM unrolls the rows of a k-block; drop the step")
        if self.factor > MOST:
            raise self.refused(nest, f"factor={self.factor} is above {MOST}")

    def apply(self, nest: Nest) -> Nest:
        """Set the factor."""
        return nest.with_fields(Compute, unroll=self.factor)
