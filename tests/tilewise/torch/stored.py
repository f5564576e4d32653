"""Models that use the kernels of a store."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import tilewise.torch as door
from tests.tilewise.stored_kernels import Stored, cache, lines, stored
from tilewise.linked import kernels

__all__ = ["Stored", "cache", "check", "exact", "fresh", "lines", "stored"]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Compilations and warnings of one test say nothing of another's; weights are the same."""
    torch.compiler.reset()
    kernels.warn_once.cache_clear()
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def check(model: Any, *inputs: Any, tolerance: float = 1e-6, **options: Any) -> list[door.Op]:
    """Compare a compiled model with itself in f64 without the compiler; return its ops."""
    compiled = torch.compile(model, backend="tilewise", dynamic=False, options=options)
    with torch.no_grad():
        got = compiled(*inputs)
        expected = exact(model, *inputs)
    assert got.shape == expected.shape and got.stride() == expected.stride()
    assert expected.norm() > 0 or expected.numel() == 0
    assert (got.double() - expected).norm() <= tolerance * expected.norm()
    return door.report(model)


def exact(model: Any, *inputs: Any) -> Any:
    """Return a model's result in f64, of weights and inputs as they are."""
    from copy import deepcopy

    return deepcopy(model).double()(*(one.double() for one in inputs))
