"""Windows of single channels, as of pools and depthwise filters: every tap becomes an op.

Channels of a block are a vector. An op multiplies, or compares, one vector of the image. Without
loops around the taps LLVM loads once what neighbouring windows share.
"""

from tilewise.kernels.mlir.network.layer import LayerShape
from tilewise.kernels.mlir.transform.writer import ANY, Writer

MOST_PRODUCTS = 128
"""Of a tile: ops that its code has."""


def iterators(shape: LayerShape) -> str:
    """What the loops of a layer do, as the attribute of its op says."""
    dims = range(len(shape.extents))
    kinds = ["parallel" if dim in shape.result else "reduction" for dim in dims]
    return f"[{', '.join(f'#linalg.iterator_type<{kind}>' for kind in kinds)}]"


def take_apart(w: Writer, shape: LayerShape, tiled: str, rows: int) -> None:
    """Leave single taps of single rows; the first axes of large windows stay loops.

    Args:
        w: takes the lines.
        shape: of windows.
        tiled: the op in its tile.
        rows: of the tile.
    """
    around, taps = [dim for dim in shape.reductions if shape.extents[dim] > 1], list[int]()
    products = rows
    while around and (more := products * shape.extents[around[-1]]) <= MOST_PRODUCTS:
        taps.insert(0, around.pop())
        products = more
    if around:
        tiled, loops = w.tile_for(tiled, _ones(shape, around))
        for loop in loops:
            w.line(f'transform.annotate {loop} "accumulates" : {ANY}')
    apart = [*([shape.row] if rows > 1 and shape.row is not None else []), *taps]
    if apart:
        _, loops = w.tile_for(tiled, _ones(shape, apart))
        for loop in reversed(loops):
            w.line(f"transform.loop.unroll_full {loop} : {ANY}")
    w.include("cleanup")


def _ones(shape: LayerShape, dims: list[int]) -> list[int]:
    return [int(dim in dims) for dim in range(len(shape.extents))]
