"""Kernels of a real store and of a real service, and what a later process finds."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.tilewise.conftest import Stored as Put
from tests.tilewise.test_kernel_asm import server
from tests.tilewise.torch.stored import check
from tilewise.kernels.system.children import child_environment
from tilewise.linked import verdicts
from tilewise.linked.kernels import Source
from tilewise.torch.background import search_in_background
from tilewise.torch.operators import load_operators

__all__ = ["server"]  # a fixture

PROBLEM = "matmul:m=8,n=16,k=24,dtype=f32,bias,weights=constant"


@pytest.mark.full
def test_a_store_and_a_service_give_the_same_kernel(
    store: Put, database: str, server: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(PROBLEM)
    monkeypatch.setattr(verdicts, "in_turns", lambda *_, **__: (1e-6, 2e-6))
    found = []
    for where in ({"store": database}, {"server": server}):
        for path in cache.glob("kernel-*"):
            path.unlink()
        torch.compiler.reset()
        model, x = torch.nn.Linear(24, 16), torch.randn(8, 24)
        (op,) = check(model, x, **where)
        assert op.kernel and op.problem == PROBLEM
        found.append([path.read_text() for path in cache.glob("kernel-*.json")])
    assert found[0] == found[1]


@pytest.mark.full
def test_a_search_in_the_background_stores_its_result(database: str, cache: Path) -> None:
    source = Source(store=database, trials=1, tune="background")
    switched: list[bool] = []
    search_in_background(source, [PROBLEM], lambda: switched.append(True)).join(200)
    assert switched
    with source.open(load_operators, [[PROBLEM]]) as found:
        assert found.load(PROBLEM) is not None


PROGRAM = """
import sys, torch
torch.manual_seed(int(sys.argv[1]))
torch.set_num_threads(1)
model, x = torch.nn.Linear(24, 16), torch.randn(8, 24)
options = {"store": sys.argv[2]}
with torch.no_grad():
    got = torch.compile(model, backend="tilewise", options=options)(x).double()
    expected = model.double()(x.double())
assert (got - expected).norm() <= 1e-6 * expected.norm()
"""


@pytest.mark.full
def test_a_later_process_packs_its_own_weights(
    store: Put, database: str, cache: Path, tmp_path: Path
) -> None:
    """Inductor keeps compiled graphs on disk; what it finds there must not contain weights."""
    store(PROBLEM)
    for seed in ("1", "2"):
        environment = child_environment(TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "inductor"))
        command = [sys.executable, "-c", PROGRAM, seed, database]
        done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
