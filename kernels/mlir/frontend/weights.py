"""Reading a module as something to run: its weights come in pieces that the child has written."""

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.kernels.errors import ModuleError
from tilewise.kernels.mlir.frontend.program import WEIGHT_TYPES, Constant, Outline, Program
from tilewise.kernels.mlir.frontend.read import Limits, ask_of_file, ask_of_module, on_disk
from tilewise.kernels.quoting import one_line
from tilewise.kernels.system.typed_json import from_json

WITH_WEIGHTS = Limits(600.0, 16 << 30)
"""Of a reading that has the weights of a model in memory, several times."""
WITHOUT_WEIGHTS = Limits()


def read_program(module: bytes, limits: Limits = WITH_WEIGHTS) -> Program:
    """A module with one function as something to run, weights and all; errors as `read_module`.

    Raises:
        ModuleError: besides, its arguments, results or weights are none that can be run here.
    """
    with on_disk(module) as path:
        reply = ask_of_file(path, limits, {"pieces": str(path.parent)})
        if "refused" in reply:
            raise ModuleError(f"the module cannot be run here: {one_line(reply['refused'])}")
        outline = from_json(Outline, reply)
        weights = {(one.node, one.role): _joined(one, path.parent) for one in outline.constants}
    return Program(outline, weights)


def read_outline(module: bytes, limits: Limits = WITHOUT_WEIGHTS) -> Outline | None:
    """What a module with one function does, without weights; None if it is none that runs here.

    Constants of passes are there without pieces, those of contractions are not.

    Raises:
        ModuleError: as of `read_module`.
    """
    reply = ask_of_module(module, limits, {"outline": ""})
    return None if "refused" in reply else from_json(Outline, reply)


def _joined(constant: Constant, folder: Path) -> NDArray[Any]:
    """A constant from its pieces, in memory of its own."""
    kind = WEIGHT_TYPES[constant.dtype]
    raw = b"".join((folder / f"{constant.name}.{i}").read_bytes() for i in range(constant.pieces))
    if len(raw) != prod(constant.shape) * np.dtype(kind).itemsize:
        raise ModuleError(f"the module was not read: {constant.role} of node {constant.node} has "
                          f"{len(raw)} bytes")  # fmt: skip
    return np.frombuffer(raw, kind).reshape(constant.shape)
