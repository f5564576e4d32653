"""What is read of the machine: caches from the kernel's files, vectors from LLVM's features."""

import importlib
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from tilewise.kernels.target import machine
from tilewise.kernels.target.machine import Processor, facts_text, this_processor, vector_unit

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


CPUINFO = "processor : 0\nvendor_id : A\nmodel : 7\ncpu MHz : {mhz}\nflags : x y\n\nprocessor : 1\n"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The names that LLVM gave, on a processor of the tests."""
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text(CPUINFO.format(mhz=3000))
    names: list[str] = []

    def name() -> str:
        names.append(f"cpu{len(names) + 1}")
        return names[-1]

    monkeypatch.setattr(llvm, "get_host_cpu_name", name)
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: {"avx2": True, "avx512f": False})
    return names


def test_llvm_is_asked_once(asked: list[str], tmp_path: Path) -> None:
    first = this_processor()
    (tmp_path / "cpuinfo").write_text(CPUINFO.format(mhz=1200))  # which changes by the second
    assert this_processor() == first == Processor(first.key, "cpu1", ("avx2",))
    assert len(asked) == 1


@pytest.mark.parametrize("change", ["model : 8", "flags : x"])
def test_another_processor_is_asked_for_anew(asked: list[str], tmp_path: Path, change: str) -> None:
    this_processor()
    name = change.partition(" ")[0]
    text = CPUINFO.format(mhz=3000)
    line = next(line for line in text.splitlines() if line.startswith(f"{name} "))
    (tmp_path / "cpuinfo").write_text(text.replace(line, change))
    assert this_processor().name == "cpu2"


def test_so_is_one_of_another_llvm(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    this_processor()
    monkeypatch.setattr(machine.metadata, "version", lambda _name: "99")
    assert this_processor().name == "cpu2"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"key": "k", "name": 3, "features": []}'])
def test_what_is_damaged_is_asked_for_anew(asked: list[str], tmp_path: Path, text: str) -> None:
    this_processor()
    (tmp_path / "cache" / "processor.json").write_text(text)
    assert this_processor().name == "cpu2"
    assert this_processor().name == "cpu2"


def test_without_a_description_or_a_folder_it_is_asked_every_time(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "file" / "below"))
    assert [this_processor().name, this_processor().name] == ["cpu1", "cpu2"]
    (tmp_path / "cpuinfo").unlink()
    assert this_processor().key == ""


WHOLE = {
    "cpu": "emeraldrapids",
    "cores": 2,
    "caches": {"l3": 260 << 20, "l1": 48 << 10, "l2": 2 << 20},
    "peaks": {"f32": 230.4, "i8": 3000.0, "f64": 100.0},
    "bandwidth_gbs": 12.3,
}


def test_facts_are_what_is_known() -> None:
    assert facts_text(WHOLE) == (
        "emeraldrapids, 2 cores, L1 48 KiB, L2 2 MiB, L3 260 MiB; one thread: f32 230 GFLOP/s, "
        "i8 3000 GFLOP/s, memory 12 GB/s"
    )
    assert facts_text({**WHOLE, "cores": 1, "caches": {"l3": 0}, "peaks": None,
                       "bandwidth_gbs": None}) == "emeraldrapids, 1 core"  # fmt: skip
    assert facts_text({"cpu": "znver5", "host": "of an older service"}) == "znver5"
