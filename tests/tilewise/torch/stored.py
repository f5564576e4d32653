"""Models that use the kernels of a store."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import torch

import tilewise.torch as door
from tests.tilewise.stored_kernels import Stored, cache, lines, stored
from tilewise.linked import kernels

__all__ = ["Stored", "cache", "check", "exact", "fresh", "is_right", "linear", "lines", "stored"]


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


def linear() -> torch.nn.Module:
    """Return a layer with an epilogue."""
    return torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.ReLU())


def check(model: Any, *inputs: Any, tolerance: float = 1e-6, **options: Any) -> list[door.Op]:
    """Compare a compiled model with itself in f64 without the compiler; return its ops."""
    compiled = torch.compile(model, backend="tilewise", dynamic=False, options=options)
    with torch.no_grad():
        got = compiled(*inputs)
        expected = exact(model, *inputs)
    assert got.stride() == expected.stride() and is_right(got, expected, tolerance)
    assert expected.norm() > 0 or expected.numel() == 0
    return door.report(model)


def is_right(got: Any, expected: Any, tolerance: float = 1e-6) -> bool:
    """Return whether a result is that of f64."""
    is_near = (got.double() - expected).norm() <= tolerance * expected.norm()
    return bool(got.shape == expected.shape and is_near)


def exact(model: Any, *inputs: Any) -> Any:
    """Return a model's result in f64, of weights and inputs as they are."""
    return deepcopy(model).double()(*(one.double() for one in inputs))
