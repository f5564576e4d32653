"""The programs of examples/ in C, Rust and Python, and the notebook."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.service.processes import ServiceProcess
from tilewise.cli import main
from tilewise.kernels.system.children import child_environment
from tilewise.plots import VEGA_LITE_MIME
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
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True,
                          check=False, timeout=240)  # fmt: skip


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
    said = " ".join(refused.stderr.split())
    assert refused.returncode and "tilewise library problems.txt" in said
    return made


@pytest.mark.full
@pytest.mark.parametrize("language", BUILD)
def test_a_program_builds_and_agrees(language: str, project: Path, tmp_path: Path) -> None:
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


NOTEBOOK = ROOT / "examples" / "search.ipynb"


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    service = ServiceProcess(f"sqlite:///{tmp_path / 'results.db'}", "tests.service.fakes:tune")
    yield f"http://127.0.0.1:{service.port}"
    service.stop()


@pytest.mark.full
def test_the_notebook_runs_and_shows_its_plots(address: str, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TILEWISE_SERVER", address)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=120).execute(cwd=str(tmp_path))
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown = {cell.source.splitlines()[-1]: cell.outputs for cell in cells}
    (card,) = shown["result"]
    assert "GFLOP/s" in card.data["text/html"] and "<svg" in card.data["text/html"]
    drawn = [line for line in shown if line.startswith("plots.")]
    assert len(drawn) == 3
    for line in drawn:
        assert len(shown[line]) == 1, shown[line]
        (output,) = shown[line]
        assert output.data["image/svg+xml"].startswith("<svg"), line
        assert (VEGA_LITE_MIME in output.data) is ("loop_nest" not in line)
    (script,) = shown["client.close()"]
    assert "module" in script.text


def test_the_notebook_is_kept_without_outputs() -> None:
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        assert not cell.get("outputs") and not cell.get("execution_count")
