"""Steps of the innermost loops: the tile in registers, and how its reduction runs."""

from dataclasses import dataclass
from typing import ClassVar

from tilewise.kernels.schedule.steps.base import Axis, Step


@dataclass(frozen=True)
class Register(Step):
    """The micro-kernel's tile, held in registers over the whole chunk of the reduction.

    Halide unroll + vectorize of the inner tile, TVM tensorize, vectorisation of the
    tiled linalg op and hoisting of its accumulator.

        register rows=6 cols=64 outer=cols
    before                          after
        for n, m, k: body               for n1 in step 64: for m1 in step 6:
                                            acc[6][64] in registers
                                            for k: acc += A[m1.., k] * B[k, n1..]

    `outer` says which of the two micro-tile loops is outermost.
    """

    name: ClassVar[str] = "register"
    rows: int
    cols: int
    outer: Axis = "cols"


@dataclass(frozen=True)
class Instruction(Step):
    """Multiply and add by one of several instructions that processors have for the element type.

    TVM tensorize, Halide's choice of an intrinsic, IREE's intrinsics of a data layout. It stands
    directly before the register step. The native lowering alone: scripts say it in a comment.

        instruction op=x86.avx512.fma.f32
        register rows=6 cols=64 outer=cols
    before                          after
        for k: acc += A * B             for k: acc += f32(A) * f32(B), by an f32 FMA

    bf16 and i8 have such a choice (`tilewise.kernels.target.instructions`), and searches record it.
    Without the step the kernel takes the instruction of the target with the most products, as all
    schedules did before there was a choice.
    """

    name: ClassVar[str] = "instruction"
    op: str


@dataclass(frozen=True)
class Jam(Step):
    """Unroll an outer loop and fuse its copies into the register tile.

    LLVM and MLIR unroll-and-jam (`loop.unroll_and_jam`), Halide and TVM unroll of a loop that is
    reordered inwards.

        jam dim=oh factor=2
    before                          after
        for oh: for ow in step 4:       for oh in step 2: for ow in step 4:
            acc[4] in registers             acc[2][4] in registers
            for taps: acc += ...            for taps: acc += ...

    What neighbouring iterations of the loop read alike is then loaded once, as the lines of an
    image that two output lines share.
    """

    name: ClassVar[str] = "jam"
    dim: str
    factor: int


@dataclass(frozen=True)
class Sweep(Step):
    """Walk all columns of a chunk of the reduction, their sums in the first cache.

    Halide and TVM reorder of a reduction's loop outwards, with the result compute_at its block.

        stream dim=k depth=8; register rows=1 cols=32; sweep dim=n
    before                          after
        for k0 in K step 8:             for k0 in K step 8:
            for n1 in step 32:              sweep n:
                acc[32] in registers            C[n] += A[k0..k0+8] * B[k0..k0+8, n]
                for k: acc += A * B
                C[n1..] += acc

    The loops are the same; the micro-kernel has those over register tiles, and reads rows of B in
    place, side by side, each from one end to the other. With `outer=rows` the register tile may
    have fewer rows than the result; the chunk of B is then read once for each tile.
    """

    name: ClassVar[str] = "sweep"
    dim: str


@dataclass(frozen=True)
class Interleave(Step):
    """Take the rows of a sweep's chunk from `streams` equal parts of the reduction in turn.

    Halide and TVM split of the reduction in parts, reordered inwards and unrolled.

        stream dim=k depth=8; register rows=1 cols=32; sweep dim=n; interleave dim=k streams=4
    before                          after
        for k0 in K step 8:             for k0 in K/4 step 2:
            sweep n:                        sweep n:
                C[n] += A[k0..k0+8]             for s in 4:
                        * B[k0..k0+8, n]            C[n] += A[s*K/4 + k0..k0+2]
                                                            * B[s*K/4 + k0..k0+2, n]

    With one row from each part in a chunk, a part of B is read from its first byte to its last,
    which prefetchers follow best; neighbouring rows side by side all end at once, after n columns.
    What whole chunks leave of the reduction lies at its end. The native lowering alone: the loops
    and their trips are the same, and a script says it in a comment.
    """

    name: ClassVar[str] = "interleave"
    dim: str
    streams: int


@dataclass(frozen=True)
class Split(Step):
    """Sum the reduction in `lanes` partial sums, added up at the end: vectors along k.

    For results too narrow to fill a vector. Halide and TVM rfactor,
    transform structured.tile_reduction_using_for.

        split dim=k lanes=16
    before                          after
        for k in K: acc += A[k] B[k]    for k in K step 16:
                                            part[0..16] += A[k..k+16] * B[k..k+16]
                                        acc = sum of part[0..16]

    The register tile's cols are then single columns. A lane may sum neighbours in
    pairs, where the processor has products of pairs.
    """

    name: ClassVar[str] = "split"
    dim: str
    lanes: int


@dataclass(frozen=True)
class Unroll(Step):
    """Unroll the micro-kernel's reduction loop. Halide unroll, TVM unroll, loop.unroll.

        unroll factor=4
    before                          after
        for k in K: fma                 for k in K step 4: fma; fma; fma; fma
    """

    name: ClassVar[str] = "unroll"
    factor: int
