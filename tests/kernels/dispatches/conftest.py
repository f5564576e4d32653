"""Modules are read here, without children."""

from collections.abc import Iterator

import pytest

from tests.kernels.mlir.in_process import without_children


@pytest.fixture(scope="module", autouse=True)
def read_here() -> Iterator[None]:
    """What a child reads of a module is tested in tests/kernels/mlir."""
    with without_children():
        yield
