"""Steps that copy: panels of an operand, and the block that comes next into a cache."""

from dataclasses import dataclass
from typing import ClassVar

from tilewise.kernels.schedule.steps.base import Operand, Step


@dataclass(frozen=True)
class Pack(Step):
    """Copy the operand's current block to contiguous panels. Halide compute_at,
    TVM cache_read, transform structured.pack.

        pack operand=B
    before                          after
        for n0, k0:                     for n0, k0:
            body reads B                    Bp[n/NR][k][NR] = B[k0.., n0..]
                                            body reads Bp

    B is packed to panels [col/NR][taps][depth][NR], zero-filled past the last column;
    A to rows of `depth` elements, for an nhwc image with the halo and the zero padding.
    A is the factor with the rows of the result and B the one with its columns, so for
    nchw A is the filter and B the image's patches, which come to be as they are packed.

    Natively a panel of f32, f64 or i32 is filled while its first tile of rows is computed,
    from the rows of B that the micro-kernel has loaded; so its packing costs stores alone.
    """

    name: ClassVar[str] = "pack"
    operand: Operand


@dataclass(frozen=True)
class Prefetch(Step):
    """Fetch the next block of an operand into L2 while the present one is computed on.

    Halide prefetch, TVM software_pipeline. The native lowering alone: scripts say it in a
    comment.

        prefetch operand=B
    before                          after
        for n0, k0:                     for n0, k0:
            Bp = B[k0.., n0..]              Bp = B[k0.., n0..]
            for m, k: body                  for m, k: body; prefetch a line of B's next block

    A B that is read in place can be fetched as well; its block is what the loops before leave:

        tile dim=n size=96
        prefetch operand=B
    before                          after
        for n0:                         for n0:
            for m, k: body                  for m, k: body; prefetch a line of B's next block

    The last calls of a block fetch the next one, as few lines in each as will do. Each line takes
    one of the few places for lines under way to the first cache, until a far cache has given it.

    Of a B that was packed ahead, as constant weights are, the panels lie one behind the other; the
    lines some way on are fetched while a panel is computed on, and no loop is needed.

    A block is read along its rows, a cache line or a few at a time, where no hardware
    prefetcher follows; the micro-kernel has loads to spare.

    Where columns span the groups of a convolution nothing is packed, and `operand=A` fetches the
    lines of the image below those that a register tile reads; where columns are swept, `operand=B`
    fetches the rows further on, or, of many rows that end their pages together, where they enter
    their next pages.
    """

    name: ClassVar[str] = "prefetch"
    operand: Operand
