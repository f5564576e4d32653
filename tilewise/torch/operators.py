"""The operators `tilewise::prepare` and `tilewise::call`, compiled once per release of torch."""

import ctypes
import os
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.utils import cpp_extension

from tilewise.linked.kernels import loaded
from tilewise.linked.libraries import compiled


@cache
def load_operators() -> ctypes.CDLL:
    """Return the loaded operators, compiled if this is the first use with this torch."""
    given = [f"-I{folder}" for folder in cpp_extension.include_paths()]
    given += [*(f"-L{folder}" for folder in cpp_extension.library_paths()), "-ltorch_cpu", "-lc10"]
    # Without it at::parallel_for runs parts one after the other. Clang's is not that of PyTorch.
    is_gcc = "clang" not in os.environ.get("CXX", shutil.which("g++") or "clang")
    given += ["-fopenmp"] if is_gcc else []
    path = compiled(Path(__file__).with_name("operators.cpp"), torch.__version__, given)
    torch.ops.load_library(str(path))
    torch.library.register_fake(
        "tilewise::prepare",
        lambda weights, name: weights.new_empty((loaded[name].packed_bytes,), dtype=torch.uint8),
    )
    torch.library.register_fake("tilewise::call", _fake_call)
    return ctypes.CDLL(str(path))


def _fake_call(
    a: Any, _b: Any, _bias: Any, _add: Any, symbol: str, shape: Any = None, _sizes: Any = None
) -> Any:
    return a.new_empty(loaded[symbol].shape if shape is None else shape)
