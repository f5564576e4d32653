"""The feed-forward block of a transformer in numpy: 128 tokens, 768 features, 3072 hidden.

python model.py
"""

import time
from collections.abc import Callable
from statistics import median

import numpy as np

TOKENS, FEATURES, HIDDEN = 128, 768, 3072
RUNS = 30

random = np.random.default_rng(0)


def values(*shape: int) -> np.ndarray:
    """Random values in [-1, 1)."""
    return random.uniform(-1, 1, shape).astype(np.float32)


x = values(TOKENS, FEATURES)
w1, b1 = values(FEATURES, HIDDEN), values(HIDDEN)
w2, b2 = values(HIDDEN, FEATURES), values(FEATURES)


def forward(x: np.ndarray) -> np.ndarray:
    """[128, 768] to [128, 768]."""
    hidden = np.maximum(x @ w1 + b1, 0)
    return hidden @ w2 + b2


def milliseconds(call: Callable[[], object]) -> float:
    """Median time of a call."""
    call()
    taken = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    return 1e3 * median(taken)


if __name__ == "__main__":
    print(f"numpy  {milliseconds(lambda: forward(x)):.2f} ms")
