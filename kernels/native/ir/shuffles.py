"""Shuffles of vectors: transposes, and rows of B interleaved to words.

An unpack interleaves the halves of each 16 bytes of two vectors, the cheapest way to join rows. The
words then come in an order of their own: columns stay in fours, and the fours of 64 bytes of a row
are spread over as many vectors as a word has elements. A skinny GEMM brings its sums to that order
before a chunk, and back after it, by whole fours; a pack brings the words themselves to that of
columns.
"""

from llvmlite import ir

from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.vectors import I16, I32, Value

BLOCK_BYTES = 16  # that an unpack works within
FOUR = 4  # columns of 32-bit sums that stay together
PAIR, QUAD = 2, 4


def shuffle(builder: Builder, x: Value, y: Value, lanes: list[int]) -> Value:
    """Return elements of x and y, by their numbers."""
    indices = ir.Constant(ir.VectorType(I32, len(lanes)), lanes)
    return builder.shuffle_vector(x, y, indices)


def transpose(builder: Builder, rows: list[Value]) -> list[Value]:
    """Transpose squares of vectors, side by side, by exchanging halves, quarters, and so on.

    Of n vectors each n neighbouring lanes are the row of a square; a vector may have several.
    """
    count, lanes = len(rows), rows[0].type.count
    rows, distance = list(rows), count // 2
    while distance:
        low = [i if not i // distance % 2 else lanes + i - distance for i in range(lanes)]
        high = [i + distance if not i // distance % 2 else lanes + i for i in range(lanes)]
        for i in range(count):
            if i // distance % 2:
                continue
            upper, lower = rows[i], rows[i + distance]
            rows[i] = shuffle(builder, upper, lower, low)
            rows[i + distance] = shuffle(builder, upper, lower, high)
        distance //= 2
    return rows


def joined(builder: Builder, parts: list[Value]) -> Value:
    """Return vectors of one length, a power of two of them, as one."""
    while len(parts) > 1:
        lanes = list(range(2 * parts[0].type.count))
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [shuffle(builder, one, other, lanes) for one, other in pairs]
    return parts[0]


def part(builder: Builder, vector: Value, first: int, count: int) -> Value:
    """Return some neighbouring lanes of a vector."""
    if count == vector.type.count:
        return vector
    return shuffle(builder, vector, vector, list(range(first, first + count)))


def interleaved(builder: Builder, rows: list[Value]) -> list[Value]:
    """Return words of two (i16) or four (i8) rows, as vectors of i32; row r is the r-th element."""
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
    """Return the low or the high halves of each 16 bytes of x and y, in turn."""
    count = x.type.count
    per_block = BLOCK_BYTES * 8 // x.type.element.width
    order = []
    for block in range(0, count, per_block):
        first = block + high * per_block // 2
        for element in range(first, first + per_block // 2):
            order += [element, count + element]
    return shuffle(builder, x, y, order)


def in_order_of_words(builder: Builder, sums: list[Value]) -> list[Value]:
    """Return sums of neighbouring columns in the order in which words have them."""
    return [_picked(builder, sums, wanted) for wanted in _fours(sums)]


def in_order_of_columns(builder: Builder, sums: list[Value]) -> list[Value]:
    """Return sums or words in the order of columns: the reverse of `in_order_of_words`."""
    per_vector = sums[0].type.count // FOUR
    flat = [four for row in _fours(sums) for four in row]
    found = {four: place for place, four in enumerate(flat)}
    return [
        _picked(builder, sums, [found[vector * per_vector + i] for i in range(per_vector)])
        for vector in range(len(sums))
    ]


def _fours(vectors: list[Value]) -> list[list[int]]:
    """Return for each vector of words the fours of columns in it, counted over all vectors.

    The f-th four of each 16 bytes of a row goes to vector f, and there to the place of those bytes.
    """
    count, per_vector = len(vectors), vectors[0].type.count // FOUR
    return [[count * place + vector for place in range(per_vector)] for vector in range(count)]


def _picked(builder: Builder, vectors: list[Value], fours: list[int]) -> Value:
    """Return a vector of fours of `vectors`; the first halves come from few of them."""
    per_vector = vectors[0].type.count // FOUR
    if per_vector == PAIR:
        return _half(builder, vectors, fours, per_vector)
    half = len(fours) // 2
    low, high = (_half(builder, vectors, part, per_vector) for part in (fours[:half], fours[half:]))
    count = len(fours) * FOUR
    return shuffle(builder, low, high, [*range(count // 2), *range(count, count + count // 2)])


def _half(builder: Builder, vectors: list[Value], fours: list[int], per_vector: int) -> Value:
    """Return a vector that begins with two fours."""
    first, second = fours
    x, y = vectors[first // per_vector], vectors[second // per_vector]
    count = x.type.count
    begin = first % per_vector * FOUR
    then = count * (x is not y) + second % per_vector * FOUR
    order = [*range(begin, begin + FOUR), *range(then, then + FOUR)]
    return shuffle(builder, x, y, order + [0] * (count - len(order)))
