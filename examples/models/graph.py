"""A model as a list of layers: what every spelling writes and every reference computes.

Images are nhwc and filters hwcf; a spelling may write them in another layout.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Value:
    """What a layer gives: its name, shape and dtype (f32 or bf16)."""

    name: str
    shape: Shape
    dtype: str = "f32"


@dataclass(frozen=True)
class Layer:
    """One operation.

    Attributes:
        kind: the method that a spelling has for it, such as `conv`.
        reads: the values that it reads.
        weights: names of its weights, in order.
        gives: its result.
        settings: what else it takes, such as the stride.
    """

    kind: str
    reads: tuple[Value, ...]
    weights: tuple[str, ...]
    gives: Value
    settings: dict[str, Any]


@dataclass
class Graph:
    """Layers in order, with their weights; each method adds a layer and gives its value.

    Attributes:
        name: of the model.
        given: the model's only argument.
        layers: in an order in which they can be computed.
        weights: f32 values by name; those of a bf16 layer are exact in bf16.
        random: where weights come from.
    """

    name: str
    given: Value
    layers: list[Layer] = field(default_factory=list)
    weights: dict[str, Array] = field(default_factory=dict)
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    @property
    def result(self) -> Value:
        """What the last layer gives."""
        return self.layers[-1].gives

    def argument(self, seed: int = 1) -> Array:
        """Random input of the model, f32."""
        values = np.random.default_rng(seed).standard_normal(self.given.shape)
        return as_stored(values.astype(np.float32), self.given.dtype)

    def conv(
        self,
        x: Value,
        co: int,
        size: int,
        stride: int = 1,
        relu: bool = True,
        gain: float = 1.0,
        *,
        ceiling: int | None = None,
        depthwise: bool = False,
    ) -> Value:
        """A convolution with a folded batch norm: filters, bias, perhaps relu; `same` padding.

        Relu may end at a ceiling; depthwise, each channel has a filter of its own.
        """
        n, h, w, channels = x.shape
        ci = 1 if depthwise else channels
        pad = size // 2
        out = (n, (h + 2 * pad - size) // stride + 1, (w + 2 * pad - size) // stride + 1, co)
        filters = self._weight((size, size, ci, co), gain * (2 / (size * size * ci)) ** 0.5)
        bias = self._weight((co,), 0.1)
        settings = {
            "stride": stride,
            "pad": pad,
            "relu": relu,
            "ceiling": ceiling,
            "groups": channels if depthwise else 1,
        }
        return self._add("conv", (x,), (filters, bias), out, settings)

    def linear(self, x: Value, n: int, relu: bool = False, gain: float = 1.0) -> Value:
        """X @ W + b on rows, in f32 whatever x is; perhaps relu."""
        m, k = x.shape
        weights = self._weight((k, n), gain / k**0.5, x.dtype)
        bias = self._weight((n,), 0.1)
        return self._add("linear", (x,), (weights, bias), (m, n), {"relu": relu})

    def narrow(self, x: Value) -> Value:
        """X rounded to bf16."""
        return self._add("narrow", (x,), (), x.shape, {}, "bf16")

    def add(self, x: Value, y: Value, relu: bool = False) -> Value:
        """X + y, perhaps relu."""
        return self._add("add", (x, y), (), x.shape, {"relu": relu})

    def max_pool(self, x: Value) -> Value:
        """The largest of 3x3, stride 2, padding 1."""
        n, h, w, c = x.shape
        return self._add("max_pool", (x,), (), (n, (h - 1) // 2 + 1, (w - 1) // 2 + 1, c), {})

    def mean_pool(self, x: Value) -> Value:
        """The mean of each channel."""
        return self._add("mean_pool", (x,), (), (x.shape[0], x.shape[3]), {})

    def split_heads(self, x: Value, heads: int) -> Value:
        """[m, heads * d] as [heads, m, d]."""
        m, width = x.shape
        return self._add("split_heads", (x,), (), (heads, m, width // heads), {}, x.dtype)

    def merge_heads(self, x: Value) -> Value:
        """[heads, m, d] as [m, heads * d]."""
        heads, m, d = x.shape
        return self._add("merge_heads", (x,), (), (m, heads * d), {}, x.dtype)

    def transpose(self, x: Value) -> Value:
        """[m, n] as [n, m]."""
        return self._add("transpose", (x,), (), x.shape[::-1], {}, x.dtype)

    def scores(self, q: Value, k: Value) -> Value:
        """Q @ k^T of each head."""
        return self._add("scores", (q, k), (), (q.shape[0], q.shape[1], k.shape[1]), {})

    def mix(self, p: Value, v: Value) -> Value:
        """P @ v of each head."""
        return self._add("mix", (p, v), (), (p.shape[0], p.shape[1], v.shape[2]), {})

    def scaled(self, x: Value, by: float) -> Value:
        """X times a number."""
        return self._add("scaled", (x,), (), x.shape, {"by": by})

    def softmax(self, x: Value) -> Value:
        """Over the last dimension."""
        return self._add("softmax", (x,), (), x.shape, {})

    def gelu(self, x: Value) -> Value:
        """X / 2 (1 + erf(x / sqrt 2))."""
        return self._add("gelu", (x,), (), x.shape, {})

    def layer_norm(self, x: Value) -> Value:
        """Of each row, with a weight and a bias."""
        scale, shift = self._weight((x.shape[1],), 0.1, mean=1.0), self._weight((x.shape[1],), 0.1)
        return self._add("layer_norm", (x,), (scale, shift), x.shape, {"epsilon": 1e-5})

    def _weight(self, shape: Shape, spread: float, dtype: str = "f32", mean: float = 0.0) -> str:
        name = f"w{len(self.weights)}"
        values = mean + spread * self.random.standard_normal(shape, dtype=np.float32)
        self.weights[name] = as_stored(values.astype(np.float32), dtype)
        return name

    def _add(
        self,
        kind: str,
        reads: Sequence[Value],
        weights: tuple[str, ...],
        shape: Shape,
        settings: dict[str, Any],
        dtype: str = "f32",
    ) -> Value:
        gives = Value(f"v{len(self.layers)}", shape, dtype)
        self.layers.append(Layer(kind, tuple(reads), weights, gives, settings))
        return gives


def as_stored(values: Array, dtype: str) -> Array:
    """f32 values as a dtype can hold them, still f32: bf16 rounds to the nearest even."""
    if dtype == "f32":
        return values
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    return (rounded & np.uint32(0xFFFF0000)).view(np.float32)
