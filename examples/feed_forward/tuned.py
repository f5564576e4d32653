"""The same block with two tuned kernels in place of numpy's layers.

    python tuned.py

`layer1.py` and `layer2.py` are what `tilewise kernel` writes.
"""

from types import ModuleType

import layer1
import layer2
import numpy as np
from model import b1, b2, forward, milliseconds, w1, w2, x


def ahead(layer: ModuleType, weights: np.ndarray) -> np.ndarray:
    """Weights as a layer takes them: packed once, if its schedule packs them."""
    return layer.pack(weights) if hasattr(layer, "pack") else weights


packed1, packed2 = ahead(layer1, w1), ahead(layer2, w2)


def tuned(x: np.ndarray) -> np.ndarray:
    """[128, 768] to [128, 768]."""
    hidden = layer1.matmul(x, packed1, bias=b1)
    return layer2.matmul(hidden, packed2, bias=b2)


if __name__ == "__main__":
    expected = forward(x)
    error = np.abs(tuned(x) - expected).max() / np.abs(expected).max()
    assert error < 1e-5, f"the kernels differ from numpy by {error:.1g}"

    numpy_ms, tuned_ms = milliseconds(lambda: forward(x)), milliseconds(lambda: tuned(x))
    print(f"numpy  {numpy_ms:.2f} ms")
    print(f"tuned  {tuned_ms:.2f} ms, {numpy_ms / tuned_ms:.2f} times as fast")
    print(f"error  {error:.1e} of the largest value")
