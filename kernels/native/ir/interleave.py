"""Whole vectors of neighbouring rows of B as vectors of words, and sums in the order of those.

An unpack interleaves the halves of each 16 bytes of two vectors, the cheapest way to join rows. The
words then come in an order of their own: columns stay in fours, and the fours of 64 bytes of a row
are spread over as many vectors as a word has elements. A sweep brings its sums to that order before
a chunk, and back after it, by whole fours; a pack brings the words themselves to that of columns.
"""

from llvmlite import ir

from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.vectors import I16, I32, Value

BLOCK_BYTES = 16  # that an unpack works within
FOUR = 4  # columns of 32-bit sums that stay together
PAIR, QUAD = 2, 4


def interleaved(builder: Builder, rows: list[Value]) -> list[Value]:
    """Words of two (i16) or four (i8) rows, as vectors of i32; row r is the r-th element."""
    wide = ir.VectorType(I32, rows[0].type.count * rows[0].type.element.width // 32)
    if len(rows) == PAIR:
        words = [_unpacked(builder, rows[0], rows[1], high) for high in (0, 1)]
    else:
        assert len(rows) == QUAD
        pairs = ir.VectorType(I16, 2 * wide.count)
        low, high = (
            [builder.bitcast(_unpacked(builder, rows[i], rows[i + 1], half), pairs) for i in (0, 2)]
            for half in (0, 1)
        )
        words = [_unpacked(builder, x, y, half) for x, y in (low, high) for half in (0, 1)]
    return [builder.bitcast(word, wide) for word in words]


def _unpacked(builder: Builder, x: Value, y: Value, high: int) -> Value:
    """The low or the high halves of each 16 bytes of x and y, element by element in turn."""
    count = x.type.count
    per_block = BLOCK_BYTES * 8 // x.type.element.width
    order = []
    for block in range(0, count, per_block):
        first = block + high * per_block // 2
        for element in range(first, first + per_block // 2):
            order += [element, count + element]
    return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, count), order))


def places(vectors: int, fours: int) -> list[list[int]]:
    """For each vector of words the fours of columns that it has, counted over all vectors.

    The f-th four of each 16 bytes of a row goes to vector f, and there to the place of those bytes.
    """
    return [[vectors * place + vector for place in range(fours)] for vector in range(vectors)]


def in_order_of_words(builder: Builder, sums: list[Value]) -> list[Value]:
    """Sums of neighbouring columns in the order in which words have them."""
    fours = sums[0].type.count // FOUR
    return [_picked(builder, sums, wanted) for wanted in places(len(sums), fours)]


def in_order_of_columns(builder: Builder, sums: list[Value]) -> list[Value]:
    """The reverse of `in_order_of_words`, for sums and for words."""
    fours = sums[0].type.count // FOUR
    flat = [four for row in places(len(sums), fours) for four in row]
    found = {four: place for place, four in enumerate(flat)}
    return [
        _picked(builder, sums, [found[vector * fours + place] for place in range(fours)])
        for vector in range(len(sums))
    ]


def _picked(builder: Builder, vectors: list[Value], fours: list[int]) -> Value:
    """A vector of fours, counted over all of `vectors`; the first halves come from few of them."""
    per_vector = vectors[0].type.count // FOUR
    half = len(fours) // 2
    low, high = (_half(builder, vectors, part, per_vector) for part in (fours[:half], fours[half:]))
    count = len(fours) * FOUR
    order = [*range(count // 2), *range(count, count + count // 2)]
    return builder.shuffle_vector(low, high, ir.Constant(ir.VectorType(I32, count), order))


def _half(builder: Builder, vectors: list[Value], fours: list[int], per_vector: int) -> Value:
    """A vector that begins with two fours."""
    first, second = fours
    x, y = vectors[first // per_vector], vectors[second // per_vector]
    count = x.type.count
    begin = first % per_vector * FOUR
    then = count * (x is not y) + second % per_vector * FOUR
    order = [*range(begin, begin + FOUR), *range(then, then + FOUR)]
    order += [0] * (count - len(order))
    return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, count), order))
