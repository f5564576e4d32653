"""Proofs of these tests time a script briefly: how fast it is they do not ask."""

from collections.abc import Iterator

import pytest

REPEAT_S = 0.02


@pytest.fixture(scope="session", autouse=True)
def timed_briefly() -> Iterator[None]:
    """Hand it to the children of proofs; those of specs, which are compared by time, stay long."""
    from kernels.mlir.normalised import prove as normalised
    from kernels.mlir.proof import prove, verify

    with pytest.MonkeyPatch.context() as patch:
        for module in (prove, verify, normalised):
            patch.setattr(module, "REPEAT_SECONDS", REPEAT_S)
        yield
