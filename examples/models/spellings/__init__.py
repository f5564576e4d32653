"""Spellings of a model in MLIR: linalg's named operations, torch-mlir's, StableHLO's.

Face: `spelled`.
"""

from examples.models.graph import Graph
from examples.models.spellings.linalg import Linalg
from examples.models.spellings.stablehlo import StableHlo
from examples.models.spellings.torch_mlir import TorchMlir

SPELLINGS = {"linalg": Linalg, "torch": TorchMlir, "stablehlo": StableHlo}


def spelled(graph: Graph, spelling: str = "linalg") -> str:
    """The model's module: `@main`, its weights as constants."""
    return SPELLINGS[spelling](graph).text()
