"""The example of the proposal for linalg on tensors, in today's operations.

A 16x1024 by 1024x33 matmul, tiled by 2, 3, 4: three loops that carry the result, two
slices that are read, one that is read and written back. The proposal (2020) said
`subtensor` and `subtensor_insert`, and `init` where linalg now says `outs`.
"""

from collections.abc import Callable

from tests.kernels.mlir.proof.test_verify import tiled
from tilewise.kernels.mlir.proof.prove import verify

PAYLOAD = """
func.func @matmul(%arg0: tensor<16x1024xf32>, %arg1: tensor<1024x33xf32>,
                  %arg2: tensor<16x33xf32>) -> tensor<16x33xf32> {
  %0 = linalg.matmul ins(%arg0, %arg1 : tensor<16x1024xf32>, tensor<1024x33xf32>)
                     outs(%arg2 : tensor<16x33xf32>) -> tensor<16x33xf32>
  return %0 : tensor<16x33xf32>
}
"""


def test_the_proposals_tiling_has_its_loops_and_slices(golden: Callable[[str, str], None]) -> None:
    verdict = verify(tiled("[2, 3, 4]", 3), payload=PAYLOAD)
    assert verdict.proof.ok, verdict.proof.message
    assert verdict.found.outline == (
        "func @matmul",
        "  for 8 trips, step 2",
        "    for 11 trips, step 3",
        "      for 256 trips, step 4",
        "        linalg.matmul on tensor<2x3xf32>",
    )
    golden("linalg_on_tensors.mlir", verdict.found.transformed)
