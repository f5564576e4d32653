"""Register tiles of whole vectors: the shapes that fit the registers and are worth a trial."""

MOST_ROWS, MOST_VECTORS = 16, 6
LEAST_ACCUMULATORS = 8  # that hide the latency of a multiply-add


def register_tiles(rows: int, vectors: int, registers: int) -> tuple[tuple[int, int], ...]:
    """(rows, vectors) that fit the registers, narrow tiles first.

    A step needs its accumulators and one row of B. Wider than the problem makes no sense, and
    neither does a tile with fewer accumulators than hide a multiply-add's latency, unless
    the problem is that small.

    Args:
        rows: of the result.
        vectors: that a row of the result takes.
        registers: beside those for a splat of A, and for a product that is added apart.
    """
    most_rows, most_vectors = min(MOST_ROWS, rows), min(MOST_VECTORS, vectors)
    least = min(LEAST_ACCUMULATORS, most_rows * most_vectors)
    return tuple(
        (tall, wide)
        for wide in range(1, most_vectors + 1)
        for tall in range(1, most_rows + 1)
        if tall * wide >= least and tall * wide + wide <= registers
    )
