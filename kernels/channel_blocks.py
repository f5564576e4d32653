"""Channels in blocks: images stored as [n, channels / b, h, w, b].

A pixel of a block is `b` neighbours, so rows of a register tile lie close together, whatever the
channels of the image: rows that are a power of two of channels apart share a cache set. oneDNN
has its images so for vectors of channels (Georganas et al., Anatomy of High-Performance Deep
Learning Convolutions on SIMD Architectures, SC 2018).

Blocks are no step of a schedule and no part of a problem: the loop nest is that of the plain
image, at other addresses.
"""

from dataclasses import dataclass

from tilewise.kernels.problem import Problem


@dataclass(frozen=True)
class Blocks:
    """Which images of a convolution have their channels in blocks.

    Attributes:
        a: channels of a block of the image; 0 for all channels side by side.
        c: of the result, and of what its sums start from.
    """

    a: int = 0
    c: int = 0

    def fit(self, ci: int, co: int) -> bool:
        """Whether they divide the channels of image and result."""
        return not (self.a and ci % self.a) and not (self.c and co % self.c)

    def __str__(self) -> str:
        told = [f"blocks of {size} in {name}" for name, size in vars(self).items() if size]
        return ", ".join(told) or "no blocks"


PLAIN = Blocks()


def shape_in_blocks(problem: Problem, role: str, blocks: Blocks) -> tuple[int, ...]:
    """The shape of an operand; [n, channels / b, h, w, b] of an image in blocks."""
    shape = problem.operand_shapes[role]
    size = {"A": blocks.a, "C": blocks.c}.get(role, 0)
    if not size:
        return shape
    images, height, width, channels = shape
    return images, channels // size, height, width, size
