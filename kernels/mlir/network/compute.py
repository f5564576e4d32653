"""The compute stage of a layer: tiles of pixels by a block's columns, sums in registers.

The last op of a layer is tiled to rows by a block of columns, and the other ops are fused into the
tile. Blocks and taps are loops, and the depth of a block takes one step per element. Rows that are
not contiguous in the image are multiplied separately. Windows of single channels, as in pools and
depthwise filters, become an op on a vector of channels for each tap of each row; without loops over
taps LLVM loads shared pixels once.
"""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd, prod

from tilewise.kernels.mlir.cpu.loops import largest_divisor
from tilewise.kernels.mlir.network.plan import Layer, LayerShape
from tilewise.kernels.mlir.network.script import network_sequence
from tilewise.kernels.mlir.transform.module import HEADER_END, MODULE
from tilewise.kernels.mlir.transform.sequences import (
    bufferize,
    contraction_matcher,
    elementwise_matcher,
    hoist_accumulators,
    named_sequence,
)
from tilewise.kernels.mlir.transform.writer import ANY, SequenceWriter
from tilewise.kernels.target import Target

SPARE_REGISTERS = 4
SETS_BYTES = 4096
"""A way of a first-level cache: lines at this distance share a set."""
IN_FLIGHT = 8
"""Multiply-adds that have to be in flight: two per cycle with a latency of four."""


@dataclass(frozen=True)
class LayerTile:
    """The sums of one tile: neighbours along the row, lines of such rows, and blocks of columns."""

    rows: int = 1
    lines: int = 1
    blocks: int = 1

    @property
    def size(self) -> int:
        """Rows times columns, in blocks."""
        return self.rows * self.lines * self.blocks


def tile_of(shape: LayerShape, target: Target) -> LayerTile:
    """Return the tile that registers hold with the most products per load.

    Each step loads a number per row and a vector per block, two in the time of two multiply-adds.
    The first-level cache holds a line of each row; lines of one set are limited by its ways.
    """
    if shape.is_by_channel:
        return _of_windows(shape)
    return min(_held(shape, target), key=_cost)


def _of_windows(shape: LayerShape) -> LayerTile:
    taps = prod(shape.extents[dim] for dim in shape.reductions)
    return LayerTile(largest_divisor((shape.length("row"),), max(MOST_PRODUCTS // taps, 1)))


def _held(shape: LayerShape, target: Target) -> Iterator[LayerTile]:
    """Yield the tiles whose sums registers hold."""
    vectors = -(-shape.columns // target.lanes("f32"))
    sums = max((target.vector_registers - SPARE_REGISTERS) // vectors, 1)
    sets = SETS_BYTES // gcd(SETS_BYTES, shape.distance)
    most = max(sets * (target.l1_bytes // SETS_BYTES), 1)
    for rows in _divisors(shape.length("row"), min(sums, most)):
        for lines in _divisors(shape.length("line"), sums // rows):
            for blocks in _divisors(shape.length("block"), sums // rows // lines):
                yield LayerTile(rows, lines, blocks)


def _cost(tile: LayerTile) -> tuple[float, float, int]:
    """Return the cost of a product in half cycles, then its loads; fewer lines break ties."""
    loads = tile.rows * tile.lines + tile.blocks
    return max(tile.size, loads, IN_FLIGHT) / tile.size, loads / tile.size, tile.lines


def _divisors(extent: int, most: int) -> Iterator[int]:
    return (size for size in range(1, min(extent, most) + 1) if extent % size == 0)


MOST_PRODUCTS = 128
"""Of a tile, each an op in its code."""


def iterators(shape: LayerShape) -> str:
    """Return the iterator types of a layer's op."""
    dims = range(len(shape.extents))
    kinds = ["parallel" if dim in shape.result else "reduction" for dim in dims]
    return f"[{', '.join(f'#linalg.iterator_type<{kind}>' for kind in kinds)}]"


def take_apart(w: SequenceWriter, shape: LayerShape, tiled: str, rows: int) -> None:
    """Split a tile into single taps of single rows; outer axes of large windows stay loops."""
    around, taps = [dim for dim in shape.reductions if shape.extents[dim] > 1], list[int]()
    products = rows
    while around and (more := products * shape.extents[around[-1]]) <= MOST_PRODUCTS:
        taps.insert(0, around.pop())
        products = more
    if around:
        tiled, loops = w.tile_for(tiled, _ones(shape, around))
        _accumulate(w, loops)
    apart = [*([shape.row] if rows > 1 and shape.row is not None else []), *taps]
    if apart:
        w.unroll_full(w.tile_for(tiled, _ones(shape, apart))[1])
    w.include("cleanup")


def _accumulate(w: SequenceWriter, loops: list[str]) -> None:
    for loop in loops:
        w.annotate(loop, "accumulates")


def _ones(shape: LayerShape, dims: list[int]) -> list[int]:
    return [int(dim in dims) for dim in range(len(shape.extents))]


BODY = ("arith.mulf", "arith.addf")
MOST_RANK = 4
"""Of an op inside a tile: blocks, lines, rows and columns."""


def emit_layer(layer: Layer, tile: LayerTile) -> str:
    """Return the transform module that computes a layer in tiles."""
    shape, w = layer.shape, SequenceWriter()
    w.line(f"%contraction = {_found(shape)} in %func : ({ANY}) -> {ANY}")
    tiled, apart = _tiles(w, layer, tile), _is_apart(shape, tile)
    if shape.is_by_channel:
        take_apart(w, shape, tiled, tile.rows)
        w.include("drop_unit_dims")
    else:
        _multiply(w, shape, tiled, tile, is_apart=apart)
    _vectors(w, has_more=bool(layer.ends) or shape.is_by_channel)
    fused = f"transform.include @fuse_products failures(propagate) (%buffers) : ({ANY}) -> ()"
    main = network_sequence("compute_layer", lines="\n".join(w.lines), fused=fused if apart else "")
    body = textwrap.indent("\n".join([main, *_sequences(shape.widens)]), "  ")
    return f"{HEADER_END}{MODULE}\n{body}}}\n"


def _found(shape: LayerShape) -> str:
    """Return what matches the layer's op: its sums, or its loops if it may be a pool."""
    if not shape.is_by_channel:
        return "transform.collect_matching @contraction"
    return (
        'transform.structured.match ops{["linalg.generic"]} '
        f"attributes{{iterator_types = {iterators(shape)}}}"
    )


def _is_apart(shape: LayerShape, tile: LayerTile) -> bool:
    """Return whether rows are multiplied separately."""
    if shape.is_by_channel or tile.lines * tile.blocks > 1:
        return True
    return shape.is_apart and tile.rows > 1


def _multiply(
    w: SequenceWriter, shape: LayerShape, tiled: str, tile: LayerTile, *, is_apart: bool
) -> None:
    """Write a tile's products, one depth at a time."""
    _loops(w, shape, tiled, tile, is_apart=is_apart)
    w.include("cleanup")
    w.include("drop_unit_dims")
    if is_apart:
        w.merge_slices([w.match_loops("accumulates", "around")])
        return
    kinds = "xxk" if tile.rows > 1 else "xk"
    _, loops = w.tile_for(w.collect(f"contraction_{kinds}"), [0] * (len(kinds) - 1) + [1])
    _accumulate(w, loops)


def _tiles(w: SequenceWriter, layer: Layer, tile: LayerTile) -> str:
    """LayerTile the last op with the others fused; return the contraction in the tile."""
    shape, ends = layer.shape, layer.ends
    rows, columns = tile.rows * tile.lines, tile.blocks * shape.columns
    w.line(f"// tiles of {rows} rows by {columns} columns")
    chain = ["%contraction"]
    for _ in range(ends):
        chain.append(w.handle("end", f"get_consumers_of_result {chain[-1]}[0]"))
    if layer.has_start:
        w.producer("%contraction", 2, "start")
    dims = shape.result if ends else tuple(range(len(shape.extents)))
    sizes = [_size(shape, dim, tile) for dim in dims]
    op = f"structured.tile_using_forall {chain[-1]} tile_sizes {sizes}"
    tiled, loop = w.handles(("tile", "loop"), op)
    for producer in reversed(chain[:-1]):
        tiled, loop = w.fuse(producer, loop, "inside")
    if layer.has_start:
        w.fuse("%start", loop, "begin")
    return tiled


def _size(shape: LayerShape, dim: int, tile: LayerTile) -> int:
    if dim in shape.reductions or dim == shape.result[-1]:
        return 0
    return {shape.row: tile.rows, shape.line: tile.lines, shape.block: tile.blocks}.get(dim, 1)


def _loops(
    w: SequenceWriter, shape: LayerShape, tiled: str, tile: LayerTile, *, is_apart: bool
) -> None:
    """Write loops over blocks and taps, also over rows and depth if rows are separate."""
    outer = list(shape.reductions if is_apart else shape.reductions[:-1])
    if outer:
        tiled, loops = w.tile_for(tiled, _ones(shape, outer))
        _accumulate(w, loops)
    if not is_apart:
        return
    dims = range(len(shape.extents))
    ones = [int(dim not in shape.reductions and _size(shape, dim, tile) > 1) for dim in dims]
    if any(ones):
        w.unroll_full(w.tile_for(tiled, ones)[1])


def _vectors(w: SequenceWriter, *, has_more: bool) -> None:
    """Vectorise everything in a tile, with sums in registers."""
    w.line("// vectors, and sums that stay in registers")
    w.vectorize_fills()
    w.vectorize(w.collect("contraction"))
    if has_more:
        for rank in range(1, MOST_RANK + 1):
            w.vectorize(w.collect(f"end_{rank}"))
    w.include("hoist_accumulators")


def _sequences(widens: bool) -> list[str]:
    kinds = [contraction_matcher(f"contraction_{kind}", kind, BODY) for kind in ("xxk", "xk")]
    return [
        named_sequence("cleanup"),
        named_sequence("drop_unit_dims"),
        *kinds,
        contraction_matcher("contraction", None, BODY),
        *(elementwise_matcher(f"end_{rank}", rank) for rank in range(1, MOST_RANK + 1)),
        hoist_accumulators(widens),
        bufferize("the layer's result where it is computed.", folds_aliases=True),
        named_sequence("lower_vectors"),
        named_sequence("fuse_products"),
    ]
