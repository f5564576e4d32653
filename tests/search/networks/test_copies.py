"""Conversions are timed by running them."""

import pytest

from tilewise.search.networks import copy_times
from tilewise.search.networks.copy_times import conversion_us
from tilewise.search.networks.variants import TensorLayout, ordered, plain

SHAPE = (1, 24, 24, 32)


def test_a_longer_tensor_takes_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_times, "BUDGET_S", 0.01)
    first = ordered((0, 3, 1, 2), SHAPE)
    longer = (8, *SHAPE[1:])
    short = conversion_us(SHAPE, "f32", plain(SHAPE), first)
    assert 0 < short < conversion_us(longer, "f32", plain(longer), ordered((0, 3, 1, 2), longer))
    halo = TensorLayout((1, 2, 3), 1, (1, 2))
    assert 0 < conversion_us(SHAPE, "bf16", plain(SHAPE), halo) < float("inf")
    assert 0 < conversion_us(SHAPE, "i1", first, halo) < float("inf")


def test_what_cannot_be_copied_takes_for_ever() -> None:
    first, halo = ordered((0, 3, 1, 2), SHAPE), TensorLayout((1, 2, 3), 1, (1, 2))
    assert conversion_us(SHAPE, "complex<f32>", plain(SHAPE), first) == float("inf")
    assert conversion_us(SHAPE, "f32", halo, first) == float("inf")


def test_names_of_layouts() -> None:
    assert plain(SHAPE).name == "plain"
    assert ordered((0, 3, 1, 2), SHAPE).name == "axes 3,1,2"
    assert TensorLayout((3, 1, 2), 1, (1, 2)).name == "axes 3,1,2 halo 1"
    assert ordered((1, 0), (1, 5)) == plain((1, 5))
