"""Modules as IREE compiles and runs them."""

import numpy as np
import pytest

from tilewise.kernels.oracle.operands import Array

KINDS = {"float32": "FLOAT_32", "uint8": "UINT_8"}


def results_of(module: bytes, *arrays: Array) -> list[Array]:
    """The results of a module's only function."""
    pytest.importorskip("iree.runtime", reason="iree-base-runtime is not installed")
    from tilewise.kernels.mlir.iree.compiler import compile_module
    from tilewise.kernels.mlir.iree.runtime import LoadedModule, open_device

    loaded = LoadedModule(compile_module(module), open_device(1))
    (name,) = [one for one in loaded.functions() if not one.startswith("__") and "$" not in one]
    return loaded.results(name, [(one, KINDS[one.dtype.name]) for one in arrays])


def random_arrays(shapes: dict[str, tuple[int, ...]], seed: int) -> dict[str, Array]:
    """Normal f32 for each name."""
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
