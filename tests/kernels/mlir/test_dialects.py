"""A child reads ops of linalg without their definitions in Python, which take long to load."""

import subprocess
import sys

import pytest

from tilewise.kernels.system.children import child_environment

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

PROGRAM = """
import sys
from iree.compiler import ir
from tilewise.kernels.mlir.dialects import LINALG, without_definitions
without_definitions()
kind = "tensor<4x4xf32>"
with ir.Context(), ir.Location.unknown():
    module = ir.Module.parse(f'''func.func @f(%a: {kind}, %b: {kind}, %c: {kind}) -> {kind} {{
      %r = linalg.matmul ins(%a, %b : {kind}, {kind}) outs(%c : {kind}) -> {kind}
      return %r : {kind}
    }}''')
    (function,) = module.body.operations
    op = function.regions[0].blocks[0].operations[0]
    from iree.compiler.dialects import linalg
    print(type(op).__name__, op.name, len(linalg.get_indexing_maps(op)))
print([name for name in sys.modules if name.startswith(f"{LINALG}.")])
"""


def test_ops_are_read_and_definitions_not_loaded() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM],
        env=child_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["MatmulOp linalg.matmul 3", "[]"]
