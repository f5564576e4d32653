"""Files that tools read, and imports that stay light."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = ("numba", "llvmlite", "optuna", "numpy", "iree", "sqlalchemy", "fastapi", "pydantic",
         "tilewise.service.db", "torch")  # fmt: skip


@pytest.mark.parametrize(
    "module", ["cli", "client", "kernels.problem", "kernels.schedule", "search.records"]
)
def test_light_modules_import_nothing_heavy(module: str) -> None:
    code = f"import sys, tilewise.{module}; print([m for m in {HEAVY} if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT).strip() == b"[]"


def test_constraints_are_names_and_versions_alone() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", pin) for pin in pins)


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    assert "make test" in (ROOT / "README.md").read_text()
