"""What can be said about a median from few samples."""

from math import comb


def median_interval(count: int, confidence: float = 0.95) -> tuple[int, int]:
    """Indices of the order statistics that hold the median with `confidence`.

    For fewer than six samples no interval reaches 95%; the whole range is given.
    """
    tail, outside = 0.0, (1 - confidence) / 2
    for k in range(count // 2):
        tail += comb(count, k) / 2**count
        if tail > outside:
            return max(0, k - 1), count - 1 - max(0, k - 1)
    return max(0, count // 2 - 1), min(count - 1, count - count // 2)
