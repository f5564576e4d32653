import shutil
import subprocess
from pathlib import Path

import pytest

from tests.brief import FINALS_S
from tilewise.cli import main

FOLDER = Path(__file__).parents[2] / "examples" / "c"
CMAKE = shutil.which("cmake")
needs_cmake = pytest.mark.skipif(
    CMAKE is None or not any(map(shutil.which, ("cc", "gcc", "clang"))),
    reason="CMake and a C compiler build the example, and this machine lacks one of them",
)


def cmake(*arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    assert CMAKE is not None
    return subprocess.run(
        [CMAKE, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    shutil.copytree(FOLDER, made)
    return made


@pytest.mark.full
@needs_cmake
def test_it_builds_and_agrees(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewise.search.final_benchmark.benchmark.FINALS_S", FINALS_S)
    database = f"sqlite:///{tmp_path / 'results.db'}"
    listed = str(project / "problems.txt")
    options = ("--tune-missing", "--trials", "4", "--db", database)
    assert main(["library", listed, "-o", str(project / "tuned"), *options]) == 0
    for arguments in (("-S", ".", "-B", "build"), ("--build", "build")):
        done = cmake(*arguments, folder=project)
        assert done.returncode == 0, done.stdout + done.stderr
    program = str(project / "build" / "layer")
    ran = subprocess.run([program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("largest difference ")


@needs_cmake
def test_without_a_library_it_says_what_makes_one(project: Path) -> None:
    done = cmake("-S", ".", "-B", "build", folder=project)
    assert done.returncode != 0 and "tilewise library problems.txt" in " ".join(done.stderr.split())
