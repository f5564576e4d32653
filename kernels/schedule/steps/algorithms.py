"""Steps that compute the same by fewer multiplications."""

from dataclasses import dataclass
from typing import ClassVar

from tilewise.kernels.schedule.steps.base import Step


@dataclass(frozen=True)
class Winograd(Step):
    """Compute a convolution in tiles of `output` x `output` pixels, by minimal filtering.

    A 3x3 filter with `output` 4 takes 36 products in place of 144 for each pair of channels. The
    taps are the problem's. Along an axis where the filter has one tap a tile is one pixel wide: of
    a 1x7 filter it has 1 x `output` pixels. A filter of stride 2 is two, one of the even pixels and
    one of the odd ones, along each axis. `tilewise.kernels.minimal_filtering.outputs_for` says
    which outputs a filter has.
    Halide and TVM write it as stages of their own (TVM: topi.nn.conv2d_winograd); transform
    structured.winograd_conv2d and structured.decompose_winograd_op. The native lowering alone:
    upstream's operation takes linalg.conv_2d_nhwc_fhwc alone, and decomposes a channel at a time.

        winograd output=4
        pack operand=B
        tile dim=t size=28
        pack operand=A
        register rows=7 cols=64 outer=cols
    before                          after
        for n, oh, ow, co:              U[point][ci][co] = G w G', for each ci, co
            acc = 0                     for t0 in tiles step 28:
            for kh, kw, ci:                 V[point][t][ci] = B' d B, for each t, ci
                acc += A * B                for co1 in step 64:
            C = acc                             for point in 36, t1 in step 7:
                                                    M[point][t1..][64] = V[point] * U[point]
                                                C = A' M A, bias and relu, for each t, co

    The schedule speaks of other dims from here on: `t` are the tiles of all images, row by row,
    and `point` the (output+kh-1)*(output+kw-1) products of a tile, as many as the pixels that it
    reads with any stride, a matrix product each; `co` and
    `ci` stay. Packing B transforms the filter, packing A the image; both are needed. A filter that
    is constant may have `prefetch operand=B` behind its pack. Tiles
    past the image's end read zeros and are cut when they are written. `nontemporal operand=C` at
    the end writes whole tiles of an nhwc result past the caches.

    Rounding differs from the direct method's, and a NaN or infinity spreads over its tile
    (`tilewise.kernels.minimal_filtering`); problems with accuracy=strict refuse the step.
    """

    name: ClassVar[str] = "winograd"
    output: int


@dataclass(frozen=True)
class Strassen(Step):
    """Compute a product of matrices from seven products of their quadrants, where eight are usual.

    The method is Strassen's (`tilewise.kernels.strassen`); with `levels` 2 each of the seven
    products is made of seven likewise. It takes a matmul, or a convolution of single pixels with
    any stride, whose reduction and columns have halves, or quarters. The native lowering alone:
    upstream has no operation that adds quadrants while it packs.

        strassen levels=1
        pack operand=B
        tile dim=t size=28
        pack operand=A
        register rows=7 cols=64 outer=cols
    before                          after
        for m, n:                       U[point][k/2][n/2] = sums of the quadrants of B
            acc = 0                     for t0 in pairs of rows step 28:
            for k:                          V[point][t][k/2] = sums of the quadrants of A
                acc += A * B                for n1 in step 64:
            C = acc                             for point in 7, t1 in step 7:
                                                    M[point][t1..][64] = V[point] * U[point]
                                                C = sums of M, bias and relu, for each t, n

    The schedule speaks of other dims from here on: `t` are groups of 2**levels rows, the columns
    and the reduction are parts of as many, and `point` the 7**levels products. Packing B and
    packing A add; both are needed. `prefetch operand=B` may stand behind B's pack: panels lie one
    behind the other, whenever they were made. Rows that a last group lacks are zero, and are not
    written.

    Rounding is bounded by the magnitude of whole blocks, not of a row and a column, and a NaN or
    infinity spreads over its group of rows and to the other parts of the columns; problems with
    accuracy=strict refuse the step.
    """

    name: ClassVar[str] = "strassen"
    levels: int
