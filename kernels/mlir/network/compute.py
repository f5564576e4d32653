"""The compute stage of a layer: tiles of pixels by a block's columns, sums in registers.

The last op of a layer is tiled to one tile of rows by one block of columns, the others are
computed inside. Of the sums, blocks and taps are loops; the depth of a block is stepped through one
element at a time. Rows that are not neighbours in the image are multiplied one by one. Windows of
single channels are taken apart: each tap of each row multiplies a vector of channels.
"""

import textwrap
from math import gcd, prod

from kernels.mlir.cpu.packs import largest_divisor
from kernels.mlir.network.layer import Layer, LayerShape
from kernels.mlir.network.templates import network_sequence
from kernels.mlir.network.windows import MOST_PRODUCTS, iterators, take_apart
from kernels.mlir.transform.matchers import contraction_matcher, elementwise_matcher
from kernels.mlir.transform.module import HEADER_END, MODULE
from kernels.mlir.transform.sequences import (
    bufferize,
    cleanup,
    drop_unit_dims,
    fuse_products,
    hoist_accumulators,
    lower_vectors,
)
from kernels.mlir.transform.writer import ANY, Writer
from kernels.target import Target

BODY = ("arith.mulf", "arith.addf")
SPARE_REGISTERS = 4
SETS_BYTES = 4096
"""Of one way of a first cache: lines so far apart are of one set."""
MOST_RANK = 2
"""Of what is left of an op inside a tile: rows and columns."""


def emit_layer(layer: Layer, rows: int) -> str:
    """The transform module that computes a layer in tiles of so many rows.

    Args:
        layer: of floats.
        rows: of a tile; a divisor of the layer's.
    """
    shape, w = layer.shape, Writer()
    w.line(f"%contraction = {_found(shape)} in %func : ({ANY}) -> {ANY}")
    tiled, apart = _tiles(w, layer, rows), shape.is_apart and (shape.is_by_channel or rows > 1)
    if shape.is_by_channel:
        take_apart(w, shape, tiled, rows)
        w.include("drop_unit_dims")
    else:
        _multiply(w, shape, tiled, rows, is_apart=apart)
    _vectors(w, has_more=bool(layer.ends) or shape.is_by_channel)
    fused = f"transform.include @fuse_products failures(propagate) (%buffers) : ({ANY}) -> ()"
    main = network_sequence("compute_layer", lines="\n".join(w.lines), fused=fused if apart else "")
    body = textwrap.indent("\n".join([main, *_sequences(shape.widens)]), "  ")
    return f"{HEADER_END}{MODULE}\n{body}}}\n"


def _found(shape: LayerShape) -> str:
    """What finds the layer's op: by what it adds up, or by its loops where it may be a pool."""
    if not shape.is_by_channel:
        return "transform.collect_matching @contraction"
    return (
        'transform.structured.match ops{["linalg.generic"]} '
        f"attributes{{iterator_types = {iterators(shape)}}}"
    )


def _multiply(w: Writer, shape: LayerShape, tiled: str, rows: int, *, is_apart: bool) -> None:
    """A tile's products, a depth at a time."""
    _loops(w, shape, tiled, is_apart=is_apart)
    w.include("cleanup")
    w.include("drop_unit_dims")
    if is_apart:
        w.merge_slices([w.match_loops("accumulates", "around")])
        return
    kinds = "xxk" if rows > 1 else "xk"
    _, loops = w.tile_for(w.collect(f"contraction_{kinds}"), [0] * (len(kinds) - 1) + [1])
    w.line(f'transform.annotate {loops[0]} "accumulates" : {ANY}')


def rows_of(shape: LayerShape, target: Target) -> int:
    """The rows of a tile: as many as registers hold sums of, and as divide the layer's.

    The first cache holds a line of each row at once, which are as many of one set as it has ways.

    Args:
        shape: of the layer.
        target: whose registers and first cache they are.
    """
    if shape.row is None:
        return 1
    if shape.is_by_channel:
        taps = prod(shape.extents[dim] for dim in shape.reductions)
        return largest_divisor((shape.extents[shape.row],), max(MOST_PRODUCTS // taps, 1))
    vectors = -(-shape.columns // target.lanes("f32"))
    held = (target.vector_registers - SPARE_REGISTERS) // vectors
    sets = SETS_BYTES // gcd(SETS_BYTES, shape.distance)
    most = max(min(held, sets * (target.l1_bytes // SETS_BYTES)), 1)
    return largest_divisor((shape.extents[shape.row],), most)


def _tiles(w: Writer, layer: Layer, rows: int) -> str:
    """Tiles of the last op with the others inside; the contraction in them."""
    shape, ends = layer.shape, layer.ends
    w.line(f"// tiles of {rows} rows by {shape.columns} columns")
    chain = ["%contraction"]
    for _ in range(ends):
        end = w.name("end")
        w.line(f"{end} = transform.get_consumers_of_result {chain[-1]}[0] : ({ANY}) -> {ANY}")
        chain.append(end)
    if layer.has_start:
        w.line(f"%start = transform.get_producer_of_operand %contraction[2] : ({ANY}) -> {ANY}")
    dims = shape.result if ends else tuple(range(len(shape.extents)))
    sizes = [_tile(shape, dim, rows) for dim in dims]
    last, loop = w.name("tile"), w.name("loop")
    w.line(
        f"{last}, {loop} = transform.structured.tile_using_forall {chain[-1]} "
        f"tile_sizes {sizes} : ({ANY}) -> ({ANY}, {ANY})"
    )
    tiled = last
    for producer in reversed(chain[:-1]):
        tiled, loop = w.fuse(producer, loop, "inside")
    if layer.has_start:
        w.fuse("%start", loop, "begin")
    return tiled


def _tile(shape: LayerShape, dim: int, rows: int) -> int:
    if dim in shape.reductions or dim == shape.result[-1]:
        return 0
    return rows if dim == shape.row else 1


def _loops(w: Writer, shape: LayerShape, tiled: str, *, is_apart: bool) -> None:
    """Loops over blocks and taps, and over rows and depth as well where rows are apart."""
    last = shape.reductions[-1]
    outer = [int(dim in shape.reductions and dim != last) for dim in range(len(shape.extents))]
    if is_apart:
        outer[last] = 1
    if any(outer):
        tiled, loops = w.tile_for(tiled, outer)
        for loop in loops:
            w.line(f'transform.annotate {loop} "accumulates" : {ANY}')
    if is_apart:
        _, loops = w.tile_for(tiled, [int(dim == shape.row) for dim in range(len(shape.extents))])
        w.line(f"transform.loop.unroll_full {loops[0]} : {ANY}")


def _vectors(w: Writer, *, has_more: bool) -> None:
    """Vectors of everything in a tile, sums in registers.

    Args:
        w: takes the lines.
        has_more: whether there is more than products: what is done to single elements.
    """
    w.line("// vectors, and sums that stay in registers")
    w.vectorize_fills()
    w.line(f"transform.structured.vectorize {w.collect('contraction')} : {ANY}")
    if has_more:
        for rank in range(1, MOST_RANK + 1):
            w.line(f"transform.structured.vectorize {w.collect(f'end_{rank}')} : {ANY}")
    w.include("hoist_accumulators")


def _sequences(widens: bool) -> list[str]:
    kinds = [contraction_matcher(f"contraction_{kind}", kind, BODY) for kind in ("xxk", "xk")]
    return [
        cleanup(),
        drop_unit_dims(),
        *kinds,
        contraction_matcher("contraction", None, BODY),
        *(elementwise_matcher(f"end_{rank}", rank) for rank in range(1, MOST_RANK + 1)),
        hoist_accumulators(widens),
        bufferize("the layer's result where it is computed.", folds_aliases=True),
        lower_vectors(),
        fuse_products(),
    ]
