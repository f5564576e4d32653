"""ONNX models as modules that `iree-compile` takes; made in a child process within limits."""

from pathlib import Path
from tempfile import TemporaryDirectory

from tilewise.kernels.mlir.frontend.read import Limits, ask_of_file, on_disk
from tilewise.kernels.mlir.frontend.source import is_onnx

CHILD = "tilewise.kernels.mlir.frontend.child.onnx"
WITH_WEIGHTS = Limits(600.0, 16 << 30)
"""Of a model that is in memory several times."""


def as_module(source: bytes, limits: Limits = WITH_WEIGHTS) -> bytes:
    """An ONNX model as a module's bytecode, weights and all; what is a module stays as it is.

    Raises:
        ModuleError: the model cannot be imported, or the package `onnx` is not installed.
        CompilerAbsentError: MLIR is not installed.
    """
    if not is_onnx(source):
        return source
    with on_disk(source) as path, TemporaryDirectory() as folder:
        reply = ask_of_file(path, limits, {"folder": folder}, CHILD)
        return b"".join((Path(folder) / str(i)).read_bytes() for i in range(reply["pieces"]))
