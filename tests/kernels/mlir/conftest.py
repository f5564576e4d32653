"""Proofs and reads without children and long timings, but where tests are of these."""

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from tests.kernels.mlir.in_process import without_children

REPEAT_S = 0.02
OF_CHILDREN = ("test_failures", "test_hostile", "test_onnx")


@pytest.fixture(scope="session", autouse=True)
def timed_briefly() -> Iterator[None]:
    """Proofs time a script briefly: how fast it is these tests do not ask, but of specs."""
    from tilewise.kernels.mlir.op_scripts import prove as op_scripts
    from tilewise.kernels.mlir.proof import prove

    with pytest.MonkeyPatch.context() as patch:
        for module in (prove, op_scripts):
            patch.setattr(module, "REPEAT_SECONDS", REPEAT_S)
        yield


@pytest.fixture(scope="module", autouse=True)
def answered_here(request: pytest.FixtureRequest) -> Iterator[None]:
    """In all modules but those whose tests are of children."""
    is_of_children = request.module.__name__.endswith(OF_CHILDREN)
    with nullcontext() if is_of_children else without_children():
        yield
