"""Each import contract of pyproject.toml fails when its rule is broken."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONFIGURED = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
BROKEN = {  # contract: a file, and the import that it must not have
    "packages": ("search/budget.py", "import tilewise.service.errors"),
    "acyclic": (
        "search/space/points.py",
        "import tilewise.search.space.tiles, tilewise.search.space.space",
    ),
    "kernels": ("kernels/problem/model.py", "import tilewise.kernels.arithmetic"),
    "native": ("kernels/native/ir/builder.py", "import tilewise.kernels.native.plan"),
    "dispatches": ("kernels/dispatches/layouts.py", "import tilewise.kernels.dispatches.library"),
    "mlir": ("kernels/mlir/payload/form.py", "import tilewise.kernels.mlir.cpu.script"),
    "search": ("search/runner/processors.py", "import tilewise.search.final_benchmark.rounds"),
    "choosing": ("search/samplers/registry.py", "import tilewise.search.timing.cold"),
    "measuring": ("search/peers/screen.py", "import tilewise.search.space.space"),
    "service": ("service/db/models/jobs.py", "import tilewise.service.jobs.lease"),
}


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages and their contracts, for a test to change."""
    place = tmp_path_factory.mktemp("contracts")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tilewise", place / "tilewise", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", place)
    assert lint(place, *BROKEN).returncode == 0, "before a test changes it"
    return place


def lint(folder: Path, *contracts: str) -> "subprocess.CompletedProcess[str]":
    program = "import sys; from importlinter.cli import lint_imports_command as run; run()"
    chosen = [word for contract in contracts for word in ("--contract", contract)]
    return subprocess.run(
        [sys.executable, "-c", program, "--no-cache", "--no-logo", *chosen],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_contract_is_broken_here() -> None:
    assert set(BROKEN) == {contract["id"] for contract in CONFIGURED["contracts"]}


@pytest.mark.full
@pytest.mark.parametrize("contract", BROKEN)
def test_a_contract_fails_when_its_rule_is_broken(contract: str, copied: Path) -> None:
    name, line = BROKEN[contract]
    path = copied / "tilewise" / name
    text = path.read_text()
    path.write_text(f"{text}\n{line}\n")
    try:
        done = lint(copied, contract)
    finally:
        path.write_text(text)
    assert done.returncode == 1
    assert "BROKEN" in done.stdout


def test_a_new_room_has_to_be_placed(copied: Path) -> None:
    (copied / "tilewise" / "search" / "elsewhere.py").write_text("")
    done = lint(copied, "search")
    (copied / "tilewise" / "search" / "elsewhere.py").unlink()
    assert done.returncode == 1
    assert "tilewise.search.elsewhere" in done.stdout
