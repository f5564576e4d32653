"""Transposes in registers, by exchanging parts of vectors."""

from llvmlite import ir

from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.vectors import I32, Value


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
    """Vectors of one length, a power of two of them, as one."""
    while len(parts) > 1:
        lanes = range(2 * parts[0].type.count)
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [shuffle(builder, one, other, list(lanes)) for one, other in pairs]
    return parts[0]


def part(builder: Builder, vector: Value, first: int, count: int) -> Value:
    """Some neighbouring lanes of a vector."""
    if count == vector.type.count:
        return vector
    return shuffle(builder, vector, vector, list(range(first, first + count)))


def shuffle(builder: Builder, x: Value, y: Value, lanes: list[int]) -> Value:
    """Elements of x and y, by their numbers."""
    indices = ir.Constant(ir.VectorType(I32, len(lanes)), lanes)
    return builder.shuffle_vector(x, y, indices)
