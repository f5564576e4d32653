"""Confidence intervals of medians, of few samples or of many."""

from functools import lru_cache
from math import exp, lgamma, log


@lru_cache(maxsize=1024)
def median_interval(count: int, confidence: float = 0.95) -> tuple[int, int]:
    """Return the indices of the order statistics that hold the median with `confidence`.

    For fewer than six samples no interval reaches 95%; the whole range is given.
    """
    tail, outside = 0.0, (1 - confidence) / 2
    for k in range(count // 2):
        tail += exp(lgamma(count + 1) - lgamma(k + 1) - lgamma(count - k + 1) - count * log(2))
        if tail > outside:
            return max(0, k - 1), count - 1 - max(0, k - 1)
    return max(0, count // 2 - 1), min(count - 1, count - count // 2)
