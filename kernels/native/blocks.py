"""Which blocks of channels a schedule's code can read and write in place, and their sizes."""

from dataclasses import dataclass

from tilewise.kernels.arithmetic import Arithmetic
from tilewise.kernels.channel_blocks import PLAIN, Blocks
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.loopnest import Nest
from tilewise.kernels.problem import Conv2d, Problem
from tilewise.kernels.schedule import Schedule


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
    if schedule.strassen is not None:
        raise _refused(problem, blocks, "are cut by the halves of the step strassen")
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
