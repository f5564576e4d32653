"""What is read of the machine: caches from the kernel's files, vectors from LLVM's features."""

import importlib
from pathlib import Path

import pytest

from tilewise.kernels.target.machine import vector_unit

module = importlib.import_module("tilewise.kernels.target.machine")


def cache(root: Path, index: int, kind: str, level: str, size: str) -> None:
    folder = root / f"index{index}"
    folder.mkdir()
    for name, text in (("type", kind), ("level", level), ("size", size)):
        (folder / name).write_text(f"{text}\n")


def test_caches_are_those_for_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHE_ROOT", tmp_path)
    cache(tmp_path, 0, "Data", "1", "48K")
    cache(tmp_path, 1, "Instruction", "1", "32K")
    cache(tmp_path, 2, "Unified", "2", "1M")
    cache(tmp_path, 3, "Unified", "3", "98304K")
    assert module._cache_sizes() == {1: 48 << 10, 2: 1 << 20, 3: 96 << 20}


@pytest.mark.parametrize("size", ["", "many", "K"])
def test_a_cache_that_says_nothing_of_use_is_passed_over(
    size: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CACHE_ROOT", tmp_path)
    assert module._cache_sizes() == {}
    cache(tmp_path, 0, "Data", "1", size)
    cache(tmp_path, 1, "Unified", "2", "2G")
    (tmp_path / "index2").mkdir()
    assert module._cache_sizes() == {2: 2 << 30}


@pytest.mark.parametrize(
    ("features", "unit"),
    [
        ({"avx512f", "avx2", "fma"}, (64, 32)),
        ({"avx2", "fma"}, (32, 16)),
        ({"sse4.2"}, (16, 16)),
        ({"neon"}, (16, 32)),
        (set(), (16, 16)),
    ],
)
def test_vectors_are_as_wide_as_the_features_say(features: set[str], unit: tuple[int, int]) -> None:
    assert vector_unit(frozenset(features)) == unit
