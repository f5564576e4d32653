import shutil
import subprocess
from pathlib import Path

import pytest

from tilewise.cli import main

FOLDER = Path(__file__).parents[2] / "examples" / "rust"
CARGO = shutil.which("cargo")


def builds() -> bool:
    if CARGO is None or not any(map(shutil.which, ("cc", "gcc", "clang"))):
        return False
    return subprocess.run([CARGO, "--version"], capture_output=True, check=False).returncode == 0


@pytest.mark.full
@pytest.mark.skipif(
    not builds(),
    reason="Cargo builds the example, and here it is absent, or has no toolchain or no linker",
)
def test_it_builds_and_agrees(tmp_path: Path) -> None:
    assert CARGO is not None
    project = tmp_path / "project"
    shutil.copytree(FOLDER, project, ignore=shutil.ignore_patterns("target", "tuned"))
    command = [CARGO, "run", "--release", "--offline", "--quiet"]
    refused = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert refused.returncode != 0 and "tilewise library problems.txt" in refused.stderr
    listed = str(project / "problems.txt")
    options = ("--tune-missing", "--trials", "4", "--db", f"sqlite:///{tmp_path / 'results.db'}")
    assert main(["library", listed, "-o", str(project / "tuned"), *options]) == 0
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("largest difference ")
