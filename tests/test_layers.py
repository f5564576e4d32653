"""Dependencies point one way: kernels <- search <- service; the client stays light."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = ("numba", "llvmlite", "optuna", "numpy", "iree", "sqlalchemy", "fastapi", "torch")


@pytest.mark.parametrize(
    "module",
    [
        "tilewise.cli",
        "tilewise.client",
        "tilewise.kernels.problem",
        "tilewise.kernels.schedule",
        "tilewise.search.records",
    ],
)
def test_light_modules_import_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print([m for m in {HEAVY} if m in sys.modules])"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert out.stdout.strip() == "[]"
