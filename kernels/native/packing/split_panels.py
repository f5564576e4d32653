"""Packing f32 operands as high and low bf16, for products of matrix tiles in three parts.

    x = high + low + rest,  |rest| <= 2**-16 |x|

32 elements of the reduction become a line of high parts, and one of low parts behind it: in a row
of A two lines of the cache, in a panel of B two groups of whole tiles.
"""

from llvmlite import ir

from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import CountedLoop
from tilewise.kernels.native.ir.dot_products import join, narrow, widen
from tilewise.kernels.native.ir.shuffles import transpose
from tilewise.kernels.native.ir.vectors import (
    ELEMENTS,
    I32,
    LINE_BYTES,
    Value,
    Vectors,
    begin_function,
    const,
)
from tilewise.kernels.native.packing.panels import PANEL_ARGUMENTS, ROWS_ARGUMENTS, each_row

LANES = 16
GROUP = 32
"""Elements of the reduction whose high parts lie side by side."""

_GROUP_BYTES = 4 * GROUP


def _parts(b: Builder, value: Value) -> tuple[Value, Value]:
    """Return high and low bf16 of a vector of f32; the low part of an infinity is a NaN."""
    high = narrow(b, value, "bf16", has_bf16=True)
    rest = b.fsub(value, widen(b, high, "bf16", "f32"))
    return high, narrow(b, rest, "bf16", has_bf16=True)


def emit_split_rows(module: ir.Module) -> ir.Function:
    """Emit to[rows][length] = source[rows][length], each 32 elements as parts, zero-filled."""
    fn, b, arg = begin_function(module, "tilewise_copy_rows", ROWS_ARGUMENTS)
    read = Vectors(b, ELEMENTS["f32"], LANES)
    write = Vectors(b, ELEMENTS["bf16"], LANES)
    with each_row(arg, read, read) as (source, to):
        group = CountedLoop(b, (), "group")
        for half in range(2):
            first = b.add(group.index, const(half * LANES))
            inside = read.first_lanes(b.sub(arg["length"], first), 0)
            high, low = _parts(b, read.load(read.offset(source, first), inside))
            at = b.add(read.offset(to, group.index), const(2 * half * LANES))
            write.store(high, at)
            write.store(low, b.add(at, const(LINE_BYTES)))
        group.close((), arg["length"], GROUP)
    return fn


def emit_split_panel(module: ir.Module, vectors: int, is_transposed: bool) -> ir.Function:
    """Emit to[depth / 32][part][vectors][16][16] = source[depth][cols], pairs of rows as words.

    With `is_transposed` the source is [cols][depth]. Past `cols` and past `depth` there is zero.
    """
    fn, b, arg = begin_function(module, "tilewise_pack_b_panel", PANEL_ARGUMENTS)
    v, words = Vectors(b, ELEMENTS["f32"], LANES), Vectors(b, ELEMENTS["i32"], LANES)
    read = _transposed_rows if is_transposed else _rows
    of_part = vectors * LANES * LINE_BYTES
    group = CountedLoop(b, (), "group")
    to = b.add(arg["to"], b.mul(group.index, const(_GROUP_BYTES // GROUP * vectors * LANES)))
    for column in range(vectors):
        for half in range(2):
            found = [_parts(b, row) for row in read(v, arg, column, _after(b, group, half))]
            for pair in range(LANES // 2):
                line = column * LANES + half * LANES // 2 + pair
                for part in range(2):
                    word = join(b, [found[2 * pair + i][part] for i in range(2)], "bf16")
                    words.store(word, b.add(to, const(part * of_part + line * LINE_BYTES)))
    group.close((), arg["depth"], GROUP)
    b.ret_void()
    return fn


def _after(b: Builder, group: CountedLoop, half: int) -> Value:
    return b.add(group.index, const(half * LANES))


def _rows(v: Vectors, arg: dict[str, Value], column: int, first: Value) -> list[Value]:
    """Return 16 rows of a vector of columns, from row `first` on."""
    b = v.builder
    exists = v.first_lanes(arg["cols"], column * LANES)
    rows = []
    for i in range(LANES):
        at = b.add(first, const(i))
        here = b.and_(exists, v.splat(b.icmp_signed("<", at, arg["depth"])))
        source = v.offset(arg["source"], b.mul(at, arg["source_row"]))
        rows.append(v.load(v.at(source, column * LANES), here))
    return rows


def _transposed_rows(v: Vectors, arg: dict[str, Value], column: int, first: Value) -> list[Value]:
    """Return the same where the columns are stored as rows."""
    b = v.builder
    exists = v.first_lanes(b.sub(arg["depth"], first), 0)
    columns = []
    for i in range(LANES):
        at = const(column * LANES + i)
        here = b.and_(exists, v.splat(b.icmp_signed("<", at, arg["cols"])))
        source = v.offset(v.offset(arg["source"], b.mul(at, arg["source_row"])), first)
        loaded = v.load(source, here)
        columns.append(b.bitcast(loaded, ir.VectorType(I32, LANES)))
    transposed = transpose(b, columns)
    return [b.bitcast(row, v.type) for row in transposed]
