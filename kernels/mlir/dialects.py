"""The Python of MLIR's dialects, as far as children need it."""

import sys
from importlib import import_module
from types import ModuleType

LINALG = "iree.compiler.dialects.linalg"
_PARTS = (
    "iree.compiler._mlir_libs._mlirDialectsLinalg",
    "iree.compiler.dialects._linalg_ops_gen",
)


def without_definitions() -> None:
    """Let this process, a child, read ops of linalg without their definitions in Python.

    MLIR's bindings load the Python of a dialect where one of its ops is first looked at. That of
    linalg also defines every named op in a language of its own, from which modules could be
    built, at each child's start. What reads ops is loaded in its place.
    """
    if LINALG in sys.modules:
        return
    made = ModuleType(LINALG)
    try:
        for part in _PARTS:
            found = vars(import_module(part)).items()
            vars(made).update({name: one for name, one in found if not name.startswith("__")})
    except ModuleNotFoundError:  # another release has other parts: the bindings load all of it
        return
    sys.modules[LINALG] = made
