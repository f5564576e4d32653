"""`fuse`: compute a convolution of single pixels as a product of matrices."""

from collections.abc import Iterable
from typing import Any, ClassVar

from tilewise.kernels.nest import Nest, nest_of
from tilewise.kernels.steps.base import Part, Place, Step, register_step


@register_step
class Fuse(Step):
    """Fuse the loops over images, lines and pixels into one. TVM and Halide fuse.

    The native lowering alone: upstream has no transform that fuses loops of a convolution.

        fuse
    before                          after
        for n, oh, ow, co:              for m, n:
            acc = 0                         acc = 0
            for ci:                         for k:
                acc += A * B                    acc += A * B
            C = acc                         C = acc

    The pixels of an nhwc image that a 1x1 filter reads one after the other are rows of a matrix,
    and later steps speak of m, n and k. Lines of 7 or 14 pixels would half fill matrix tiles.
    """

    name: ClassVar[str] = "fuse"
    place: ClassVar[Place] = Place.ALGORITHM
    choices: ClassVar[tuple[str, ...]] = ("fuse",)

    @classmethod
    def chosen(cls, choice: str, value: Any, part: Part) -> Iterable[Step]:
        """Return the step where it is wanted."""
        return [cls()] if value else []

    def check(self, nest: Nest) -> None:
        """Raise unless each pixel of the result is made of the pixel at its place."""
        if nest.problem.as_matmul is None:
            raise self.refused(nest, "only a 1x1 filter, stride 1, no padding, one group, nhwc")

    def apply(self, nest: Nest) -> Nest:
        """Return the nest of the product of matrices."""
        assert nest.problem.as_matmul is not None, "it was checked"
        return nest_of(nest.problem.as_matmul)
