"""Whole models with random weights, as MLIR in three spellings and as PyTorch.

    python -m examples.models resnet50 -o resnet50.mlir

Face: `MODELS`, `Graph`.
"""

from collections.abc import Callable

from examples.models.bert import bert, bert_bf16
from examples.models.graph import Graph
from examples.models.mixer import mixer
from examples.models.mlp import mlp
from examples.models.mobilenet import mobilenet_v2
from examples.models.resnet import resnet50

MODELS: dict[str, Callable[[bool], Graph]] = {
    "resnet50": resnet50,
    "mobilenet_v2": mobilenet_v2,
    "bert": bert,
    "bert_bf16": bert_bf16,
    "mixer": mixer,
    "mlp": mlp,
}
"""What makes each model; True makes its small form."""

__all__ = ["MODELS", "Graph"]
