"""The same models as PyTorch modules, in any float type: a reference, and a peer."""

from typing import Any

import torch
from torch.nn import functional

from examples.models.graph import Array, Graph, Layer

Tensor = torch.Tensor


class Model(torch.nn.Module):
    """A graph's layers in PyTorch; images are nchw inside.

    Args:
        graph: the model.
        dtype: of sums, and of layers that the model has in f32.
        narrow: of layers that it has in bf16; the reference takes the wide one for them too.
    """

    def __init__(
        self, graph: Graph, dtype: torch.dtype = torch.float32, narrow: torch.dtype | None = None
    ) -> None:
        super().__init__()
        self._layers = graph.layers
        self._given, self._last = graph.given.name, graph.result.name
        self._dtype, self._narrow = dtype, narrow or dtype
        for layer in graph.layers:
            for place, name in enumerate(layer.weights):
                values = torch.from_numpy(_as_torch_holds(layer, place, graph.weights[name]))
                kind = self._narrow if layer.reads[0].dtype == "bf16" else dtype
                self.register_parameter(name, torch.nn.Parameter(values.to(kind), False))

    def forward(self, given: Tensor) -> Tensor:
        """The model's result for its argument."""
        values = {self._given: given}
        for layer in self._layers:
            weights = [getattr(self, name) for name in layer.weights]
            reads = [values[value.name] for value in layer.reads]
            value = _compute(layer, reads, weights)
            values[layer.gives.name] = value.to(self._narrow) if layer.kind == "narrow" else value
        return values[self._last].to(self._dtype)

    def argument(self, values: Array) -> Tensor:
        """The model's argument as this module takes it."""
        given = torch.from_numpy(values)
        if given.ndim == 4:
            given = given.permute(0, 3, 1, 2).contiguous()
        return given.to(self._narrow if self._layers[0].reads[0].dtype == "bf16" else self._dtype)


def reference(graph: Graph, argument: Array) -> Array:
    """The model's result, computed in f64.

    What a model rounds to bf16 in between is not rounded here: it is part of its error.
    """
    model = Model(graph, torch.float64)
    with torch.inference_mode():
        found = model(model.argument(argument))
    values: Array = found.numpy()
    return values


def _as_torch_holds(layer: Layer, place: int, values: Array) -> Array:
    if place:
        return values
    if layer.kind == "conv":
        return values.transpose(3, 2, 0, 1).copy()
    return values.T.copy() if layer.kind == "linear" else values


def _compute(layer: Layer, reads: list[Tensor], weights: list[Tensor]) -> Tensor:
    x, settings = reads[0], layer.settings
    match layer.kind:
        case "conv":
            geometry = {"stride": settings["stride"], "padding": settings["pad"]}
            y = functional.conv2d(x, *weights, **geometry, groups=settings["groups"])
            if settings["ceiling"] is not None:
                return functional.hardtanh(y, 0.0, float(settings["ceiling"]))
            return functional.relu(y) if settings["relu"] else y
        case "linear":
            y = functional.linear(x, *weights)
            return functional.relu(y) if settings["relu"] else y
        case "add":
            y = x + reads[1]
            return functional.relu(y) if settings["relu"] else y
        case "layer_norm":
            return functional.layer_norm(x, x.shape[-1:], *weights, eps=settings["epsilon"])
        case "scaled":
            return x * settings["by"]
        case kind:
            return _PLAIN[kind](layer, *reads)


def _split_heads(layer: Layer, x: Tensor) -> Tensor:
    heads, m, d = layer.gives.shape
    return x.reshape(m, heads, d).transpose(0, 1)


_PLAIN: dict[str, Any] = {
    "narrow": lambda _, x: x,  # the model says to what
    "max_pool": lambda _, x: functional.max_pool2d(x, 3, 2, 1),
    "mean_pool": lambda _, x: x.mean((2, 3)),
    "split_heads": _split_heads,
    "merge_heads": lambda layer, x: x.transpose(0, 1).reshape(layer.gives.shape),
    "transpose": lambda _, x: x.transpose(0, 1),
    "scores": lambda _, q, k: q @ k.transpose(1, 2),
    "mix": lambda _, p, v: p @ v,
    "softmax": lambda _, x: torch.softmax(x, -1),
    "gelu": lambda _, x: functional.gelu(x),
}
