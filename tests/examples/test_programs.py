"""The programs of examples/ in C, Rust and Python."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.brief import FINALS_S
from tilewise.cli import main
from tilewise.kernels.system.children import child_environment
from tilewise.requirements import is_present

ROOT = Path(__file__).parents[2]
CMAKE, CARGO = map(shutil.which, ("cmake", "cargo"))
HAS_COMPILER = any(map(shutil.which, ("cc", "gcc", "clang")))
BUILD = {
    "c": [[CMAKE, "-S", ".", "-B", "build"], [CMAKE, "--build", "build"], ["build/layer"]],
    "rust": [[CARGO, "run", "--release", "--offline", "--quiet"]],
}


def ran(*command: object, folder: Path = ROOT, **more: str) -> "subprocess.CompletedProcess[str]":
    """A command that has ended."""
    words = [str(word) for word in command]
    environment = child_environment(**more)
    return subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=240
    )


def needed(language: str) -> None:
    tool = BUILD[language][0][0]
    if tool is None or not HAS_COMPILER or ran(tool, "--version").returncode:
        pytest.skip(f"{language}: no build tool with a toolchain, or no linker")


@pytest.fixture
def project(language: str, tmp_path: Path) -> Path:
    """A copy of the example, which knows no library yet."""
    needed(language)
    made, ignored = tmp_path / "project", shutil.ignore_patterns("target", "tuned")
    shutil.copytree(ROOT / "examples" / language, made, ignore=ignored)
    refused = ran(*BUILD[language][0], folder=made)
    assert refused.returncode and "tilewise library problems.txt" in " ".join(
        refused.stderr.split()
    )
    return made


@pytest.mark.full
@pytest.mark.parametrize("language", BUILD)
def test_a_program_builds_and_agrees(
    language: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewise.search.final_benchmark.benchmark.FINALS_S", FINALS_S)
    listed, tuned = str(project / "problems.txt"), str(project / "tuned")
    options = ("--tune-missing", "--trials", "4", "--db", f"sqlite:///{tmp_path / 'results.db'}")
    assert main(["library", listed, "-o", tuned, *options]) == 0
    for command in BUILD[language]:
        done = ran(*command, folder=project)
        assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("largest difference ")


@pytest.mark.full
def test_a_study_of_ones_own_finds_a_schedule() -> None:
    done = ran(sys.executable, "examples/own_study.py")
    assert "register rows=" in done.stdout, done.stderr
    printed = re.search(r"([\d.]+) us, ([\d.]+) GFLOP/s", done.stdout)
    assert printed and float(printed[2]) > 0
    assert len(re.findall(r"Trial \d+ finished", done.stderr)) == 24


@pytest.mark.full
@pytest.mark.skipif(not is_present("torch"), reason="the extra `torch` is not installed")
def test_a_small_network_of_pytorch_uses_kernels(tmp_path: Path) -> None:
    done = ran(
        sys.executable, "examples/pytorch/compile_model.py", "--trials", "2", "--size", "14",
        TILEWISE_DB=f"sqlite:///{tmp_path}/results.db",
        TILEWISE_CACHE_DIR=str(tmp_path / "cache"), OMP_NUM_THREADS="1",
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines[:3]] == ["conv2d", "conv2d", "matmul"]
    assert float(lines[3].split()[1]) < 1e-5
    assert lines[4].endswith("of 3 ops use a kernel") and len(lines) == 8
    assert all(" us " in line for line in lines[5:]), "each has a kernel, and was compared"
