"""Channels in blocks: images stored as [n, channels / b, h, w, b], read and written in place.

A pixel of a block is `b` neighbours, so rows of a register tile lie close together, whatever the
channels of the image: rows that are a power of two of channels apart share a cache set. oneDNN
has its images so for vectors of channels (Georganas et al., Anatomy of High-Performance Deep
Learning Convolutions on SIMD Architectures, SC 2018).

Blocks are no step of a schedule and no part of a problem: the loop nest is that of the plain
image, at other addresses.
"""

from dataclasses import dataclass

from kernels.arithmetic import Arithmetic
from kernels.errors import LoweringError
from kernels.loopnest import Nest
from kernels.problem import Conv2d, Problem
from kernels.schedule import Schedule


@dataclass(frozen=True)
class Blocks:
    """Which images of a convolution have their channels in blocks.

    Attributes:
        a: channels of a block of the image; 0 for all channels side by side.
        c: of the result, and of what its sums start from.
    """

    a: int = 0
    c: int = 0

    def __str__(self) -> str:
        told = [f"blocks of {size} in {name}" for name, size in vars(self).items() if size]
        return ", ".join(told) or "no blocks"


PLAIN = Blocks()


@dataclass(frozen=True)
class BlockSizes:
    """Parameters of a driver whose images have blocks; parameters where they are first asked for.

    Attributes:
        block_words: words of one that a call walks, block by block.
        c_block: channels of a block of the result.
        c_block_size: elements of one block of the result.
    """

    block_words: int
    c_block: int
    c_block_size: int

    @classmethod
    def of(cls, problem: Conv2d, blocks: Blocks, how: Arithmetic) -> "BlockSizes":
        """Those of a problem."""
        plane = problem.oh * problem.ow
        return cls(blocks.a // how.depth, blocks.c, blocks.c * plane)


def shape_in_blocks(problem: Problem, role: str, blocks: Blocks) -> tuple[int, ...]:
    """The shape of an operand; [n, channels / b, h, w, b] of an image in blocks."""
    shape = problem.operand_shapes[role]
    size = {"A": blocks.a, "C": blocks.c}.get(role, 0)
    if not size:
        return shape
    images, height, width, channels = shape
    return images, channels // size, height, width, size


def check_blocks(
    problem: Problem, schedule: Schedule, nest: Nest, how: Arithmetic, blocks: Blocks
) -> None:
    """Refuse blocks that the schedule's loops would cut.

    Raises:
        LoweringError: the message names the size that does not fit.
    """
    if blocks == PLAIN:
        return
    if not isinstance(problem, Conv2d) or problem.has_channels_first or problem.groups > 1:
        raise _refused(problem, blocks, "need an nhwc convolution of one group")
    for name, size, channels in (("A", blocks.a, problem.ci), ("C", blocks.c, problem.co)):
        if size < 0 or (size and channels % size):
            raise _refused(problem, blocks, f"do not divide the {channels} channels of {name}")
    if blocks.a:
        _check_image(problem, schedule, nest, how, blocks)
    if blocks.c:
        _check_result(problem, nest, blocks)


def _check_image(
    problem: Conv2d, schedule: Schedule, nest: Nest, how: Arithmetic, blocks: Blocks
) -> None:
    if schedule.winograd is not None:
        return  # transforms take a block at a time
    if blocks.a % how.depth:
        told = f"hold no whole words of {how.depth} elements"
        raise _refused(problem, blocks, told)
    chunk = nest.kernel.depth
    is_walked = problem.kh * problem.kw == 1 and not schedule.packs("A")
    if chunk != blocks.a and (chunk % blocks.a or not is_walked):
        wanted = f"a multiple of {blocks.a}" if is_walked else f"{blocks.a}"
        told = f"are cut by chunks of depth {chunk}; stream ci by {wanted}"
        raise _refused(problem, blocks, told)


def _check_result(problem: Conv2d, nest: Nest, blocks: Blocks) -> None:
    cols, col = nest.kernel.cols, nest.space.col
    if blocks.c % cols:
        raise _refused(problem, blocks, f"are cut by {cols} register columns; take a divisor")
    steps = {loop.step for loop in nest.loops if loop.dim == col}
    if any(step % cols for step in steps if step != problem.co):
        raise _refused(problem, blocks, f"are cut by tiles of {col} that are no {cols} columns")


def _refused(problem: Problem, blocks: Blocks, why: str) -> LoweringError:
    return LoweringError(f"{problem}: {blocks} {why}")
