"""LLVM's view of the processor, asked once and kept."""

from pathlib import Path

import llvmlite.binding as llvm
import pytest

from tilewise.kernels.target import machine
from tilewise.kernels.target.machine import Processor, this_processor

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


def test_this_machine_is_what_llvm_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path))
    for _ in range(2):
        found = this_processor()
        assert found.name == llvm.get_host_cpu_name()
        assert set(found.features) == {n for n, on in llvm.get_host_cpu_features().items() if on}
