import subprocess
import sys
from pathlib import Path

import pytest

from tilewise import service
from tilewise.kernels.errors import TargetError
from tilewise.kernels.system.children import child_command, child_environment
from tilewise.kernels.target import detect
from tilewise.service.errors import MachineError
from tilewise.service.host import child
from tilewise.service.host.machine import examine

HEAVY = ("numba", "numpy", "optuna", "llvmlite", "iree", "scipy", "dask", "distributed",
         "tilewise.cli", "tilewise.client")  # fmt: skip
ROOT = Path(service.__file__).parent
MODULES = sorted(
    "tilewise.service." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in ROOT.rglob("*.py")
    if path.name != "__init__.py"
)


def test_no_module_of_the_service_imports_a_compiler():
    code = f"""
import importlib, sys
for name in {MODULES}:
    importlib.import_module(name)
print([name for name in {HEAVY} if name in sys.modules])
"""
    command = [sys.executable, "-c", code]
    assert subprocess.check_output(command, text=True, env=child_environment()).strip() == "[]"


def test_an_examination_that_fails_says_why(monkeypatch):
    command = child_command("tilewise.service.no_such_module")
    monkeypatch.setattr(child, "child_command", lambda *_: command)
    with pytest.raises(MachineError, match=r"cannot be printed here: .*No module named"):
        examine()


def test_targets_are_made_canonical(machine):
    assert machine.canonical_target("host") == machine.target
    assert machine.canonical_target("cpu:znver4") == "cpu:znver4,threads=1"
    assert machine.require_served(machine.target) == machine.target
    most = machine.cores
    assert machine.require_served(f"cpu:host,threads={most}") == machine.targets[most - 1]
    with pytest.raises(TargetError, match=f"give threads=1 to {most}$"):
        machine.require_served(detect().with_threads(most + 1).canonical)


def run_worker(*more: str, **environment: str) -> str:
    """Run a worker that fails; return what it writes to stderr."""
    how = ("--job=1", "--owner=x:1:1", "--epoch=1", *more)
    command = child_command("tilewise.service.workers", *how)
    environment = child_environment(**environment)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    return done.stderr.strip()


def test_a_worker_without_its_parent_or_its_database_says_so_in_one_line(tmp_path):
    assert run_worker("--parent=1") == "the process 1 that started this one is gone"
    error = run_worker(TILEWISE_DB=f"sqlite:///{tmp_path / 'none.db'}")
    assert "does not exist; run `tilewise db upgrade`" in error and "Traceback" not in error
