"""Steps that make loops: around everything, around blocks, over the reduction."""

from dataclasses import dataclass
from typing import ClassVar

from tilewise.kernels.schedule.steps.base import Step


@dataclass(frozen=True)
class Parallel(Step):
    """Divide a parallel dim among threads, in equal parts of whole register tiles.

    Halide parallel, TVM parallel, transform structured.tile_using_forall.

        parallel dim=n parts=2
    before                          after
        for n in N: body                forall t in 0..2:
                                            for n in t*N/2..(t+1)*N/2: body

    Each thread runs the rest of the nest on its own part, with its own panels; two such
    steps divide a plane. No thread waits for another before the end.
    """

    name: ClassVar[str] = "parallel"
    dim: str
    parts: int


@dataclass(frozen=True)
class Tile(Step):
    """Visit a parallel dim in blocks of `size`. Halide split, TVM split, tile_using_for.

        tile dim=n size=64
    before                          after
        for n in N: body                for n0 in N step 64:
                                            for n in n0..n0+64: body
    """

    name: ClassVar[str] = "tile"
    dim: str
    size: int


@dataclass(frozen=True)
class Divide(Step):
    """Sum the reduction in blocks of `size`, each from zero in memory of its own, then add them up.

    Split-K of CUTLASS and oneDNN; Halide and TVM rfactor of the loop over blocks. A script adds a
    block to what those before left.

        divide dim=k size=512; stream dim=k depth=32; register rows=1 cols=64; sweep dim=n
    before                          after
        for k0 in K step 32:            for k1 in K step 512:
            sweep n:                        part[k1] = 0
                C += A * B                  for k0 in k1..k1+512 step 32:
                                                sweep n: part[k1] += A * B
                                        C = sum of part[k1] in their order

    What a block is summed to does not depend on when it is: blocks can be visited in any order,
    with the same result.
    """

    name: ClassVar[str] = "divide"
    dim: str
    size: int


@dataclass(frozen=True)
class Alternate(Step):
    """Visit the blocks of a loop from the end that is nearer in the caches: forwards or backwards.

    The serpentine order of out-of-core methods, between calls. No compiler has a name for it. The
    native lowering alone: scripts visit the blocks in their order, and say it in a comment.

        tile dim=m size=64; alternate dim=m
    before                          after
        for m0 in M step 64:            if A[last block] comes sooner than A[first block]:
            body                            for m0 in M step 64, the last one first: body
                                        else:
                                            for m0 in M step 64: body

    A call that reads a matrix larger than a cache leaves its end there. The next call of the same
    matrix finds nothing of it if it begins at the start, for what comes first drives out what comes
    later; it finds a cache full if it begins at the end. Each element of C is summed in the same
    order either way: blocks are of rows, of columns, or of a reduction that is divided. The blocks'
    first lines are timed at each call, four loads at each end.
    """

    name: ClassVar[str] = "alternate"
    dim: str


@dataclass(frozen=True)
class Stream(Step):
    """Visit the reduction in chunks of `depth`; C accumulates across chunks.

    Halide split of an RVar, TVM split of a reduce axis, tile_using_for on the
    reduction; MLIR-AIR's K-streaming.

        stream dim=k depth=256
    before                          after
        for k in K: body                for k0 in K step 256:
                                            for k in k0..k0+256: body
    """

    name: ClassVar[str] = "stream"
    dim: str
    depth: int
