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
