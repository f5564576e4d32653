"""A compiled module's results, which leave the caller's arrays as they were."""

import numpy as np
import pytest

from tilewise.kernels.mlir.iree.compiler import compile_module
from tilewise.kernels.mlir.iree.runtime import LoadedModule, open_device

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")
pytest.importorskip("iree.runtime", reason="iree-base-runtime is not installed")

MODULE = b"""
func.func @main(%a: tensor<37x13xf32>, %b: tensor<13x33xf32>, %c: tensor<37x33xf32>)
    -> tensor<37x33xf32> {
  %y = linalg.matmul ins(%a, %b : tensor<37x13xf32>, tensor<13x33xf32>)
                     outs(%c : tensor<37x33xf32>) -> tensor<37x33xf32>
  return %y : tensor<37x33xf32>
}"""


def test_an_argument_that_sums_start_from_stays_as_it_was() -> None:
    module = LoadedModule(compile_module(MODULE), open_device(1))
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype(np.float32)
              for shape in ((37, 13), (13, 33), (37, 33))]  # fmt: skip
    kept = [array.copy() for array in arrays]
    given = [(array, "FLOAT_32") for array in arrays]
    found = [module.results("main", given)[0] for _ in range(2)]
    for array, before in zip(arrays, kept, strict=True):
        assert np.array_equal(array, before)
    for one in found:
        np.testing.assert_allclose(one, kept[0] @ kept[1] + kept[2], rtol=1e-5, atol=1e-5)
