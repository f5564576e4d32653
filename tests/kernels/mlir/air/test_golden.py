"""A script for each end of the result, as users get them but for the version."""

from collections.abc import Callable

import pytest

from tests.kernels.mlir.air.build import ENDS, THREADS_OWN, matmul, streaming
from tilewise.kernels.mlir.air import describe, emit_air
from tilewise.kernels.mlir.transform.module import mlir_version


@pytest.mark.parametrize("end", ENDS)
def test_scripts_of_the_discussed_problem(golden: Callable[[str, str], None], end: str) -> None:
    problem = matmul("m=1024,n=512,k=2048,dtype=i32")
    schedule = streaming(THREADS_OWN, end)
    script = emit_air(problem, schedule, describe(problem, schedule))
    golden(f"to_{end}.mlir", script.replace(mlir_version(), "VERSION"))
