"""Dependencies point one way: kernels <- search <- service; the client stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "kernels": {"kernels"},
    "search": {"kernels", "search"},
    "service": {"kernels", "search", "service", "migrations"},
    "tilewise": {"kernels", "search", "service", "tilewise"},
    "migrations": {"migrations"},
}
HEAVY = ("numba", "llvmlite", "optuna", "numpy", "iree", "sqlalchemy", "fastapi")


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add((node.module or "").split(".")[0])
    return names


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_imports_point_one_way(package: str) -> None:
    paths = sorted((ROOT / package).rglob("*.py"))
    assert paths
    for path in paths:
        wrong = (imported(path) & set(MAY_IMPORT)) - MAY_IMPORT[package]
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


@pytest.mark.parametrize(
    "module",
    ["tilewise.cli", "tilewise.client", "kernels.problem", "kernels.schedule", "search.records"],
)
def test_light_modules_import_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print([m for m in {HEAVY} if m in sys.modules])"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert out.stdout.strip() == "[]"
