"""What child processes need of MLIR's Python bindings."""

import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

LINALG = "iree.compiler.dialects.linalg"
_PARTS = ("iree.compiler._mlir_libs._mlirDialectsLinalg", "iree.compiler.dialects._linalg_ops_gen")


def children(operation: Any) -> Iterator[Any]:
    """Yield the operations directly below `operation`."""
    for region in operation.regions:
        for block in region.blocks:
            for op in block.operations:
                yield op.operation


def without_definitions() -> None:
    """Let this process read linalg ops without importing the definitions of named ops.

    MLIR's bindings import a dialect's Python at the first look at one of its ops. That of linalg
    also defines every named op in a language of its own, which takes time in each child.
    """
    if LINALG in sys.modules:
        return
    made = ModuleType(LINALG)
    try:
        for part in _PARTS:
            names = vars(import_module(part))
            vars(made).update({n: one for n, one in names.items() if not n.startswith("__")})
    except ModuleNotFoundError:  # another release has other parts: the bindings import all of it
        return
    sys.modules[LINALG] = made
