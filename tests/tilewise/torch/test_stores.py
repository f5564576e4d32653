"""Kernels of real stores and services, and inputs and files that nobody should give.

The result is right, with one line of log at most.
"""

import multiprocessing
import socket
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest
import torch

from tests.cases import some
from tests.kernels.system.test_system import wait_until_gone
from tests.tilewise.conftest import store_result
from tests.tilewise.torch.stored import Stored, check, exact, is_right, lines
from tilewise.backends import choose
from tilewise.backends.choose import open_backend
from tilewise.errors import NoAnswerError
from tilewise.kernels.system.children import child_environment
from tilewise.kernels.system.files import write_whole
from tilewise.linked import kernels, verdicts
from tilewise.linked.kernels import Source
from tilewise.torch.background import search_in_background, tune_apart
from tilewise.torch.operators import load_operators

PROBLEM = "matmul:m=8,n=16,k=24,dtype=f32,bias,weights=constant"


@pytest.mark.full
def test_a_store_and_a_service_give_the_same_kernel(database, server, cache, monkeypatch):
    store_result(database, monkeypatch, PROBLEM)
    monkeypatch.setattr(verdicts, "in_turns", lambda *_, **__: (1e-6, 2e-6))
    found = []
    for where in ({"store": database}, {"server": server}):
        for path in cache.glob("kernel-*"):
            path.unlink()
        torch.compiler.reset()
        (op,) = check(torch.nn.Linear(24, 16), torch.randn(8, 24), **where)
        assert op.kernel and op.problem == PROBLEM
        found.append([path.read_text() for path in cache.glob("kernel-*.json")])
    assert found[0] == found[1]


@pytest.mark.full
def test_a_search_in_the_background_stores_its_result(database: str, cache: Path) -> None:
    source, leave = Source(store=database, trials=1, tune="background"), Mock()
    for _ in range(2):
        search_in_background(source, [PROBLEM], leave).join(200)
    assert leave.call_count == 1
    with source.open(load_operators, [[PROBLEM]]) as found:
        assert found.load(PROBLEM)


@pytest.mark.full
def test_a_search_ends_with_a_killed_program(database: str) -> None:
    given = (Source(store=database, trials=10**5), PROBLEM)
    program = multiprocessing.get_context("fork").Process(target=tune_apart, args=given)
    program.start()
    while not (searches := psutil.Process(program.pid).children(recursive=True))[1:]:
        time.sleep(0.01)
    searches[0].suspend()  # it does not end by itself
    program.kill()
    wait_until_gone(searches[0].pid)


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
def test_a_later_process_packs_its_own_weights(database, cache, tmp_path, monkeypatch) -> None:
    """Inductor keeps compiled graphs on disk; what it finds there must not contain weights."""
    store_result(database, monkeypatch, PROBLEM)
    for seed in ("1", "2"):
        environment = child_environment(TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "inductor"))
        command = [sys.executable, "-c", PROGRAM, seed, database]
        done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


nn = torch.nn


class Square(nn.Module):
    def forward(self, a, b):  # type: ignore[no-untyped-def]
        return a @ b


def test_aliased_and_empty_inputs(stored: Stored, caplog: pytest.LogCaptureFixture) -> None:
    both = torch.randn(16, 16)
    for pair in ((both, both), (both, both.t()), (both[:8], both)):
        assert check(Square(), *pair)[-1].kernel
    (op,) = check(nn.Linear(20, 32), torch.randn(0, 20))
    assert (op.kernel, op.reason) == ("", "an operand is empty") and not lines(caplog)


def test_an_input_that_is_written_to(stored: Stored) -> None:
    def write(a, b):  # type: ignore[no-untyped-def]
        a.add_(1.0)
        return a @ b

    a, b = torch.randn(4, 16), torch.randn(16, 16)
    expected = (a.double() + 1) @ b.double()
    with torch.no_grad():
        assert is_right(torch.compile(write, backend="tilewise")(a, b), expected)


@pytest.mark.parametrize("given", some([
    torch.randn(6, 40)[:, ::2], torch.randn(12, 20)[::2], torch.randn(20, 6).t(),
    torch.randn(1, 20).expand(6, 20), torch.randn(6 * 20 + 1)[1:].view(6, 20),
], of=3), ids=["columns", "rows", "transposed", "expanded", "shifted"])  # fmt: skip
def test_inputs_that_are_not_contiguous(stored: Stored, given: torch.Tensor) -> None:
    assert check(nn.Linear(20, 32), given)[0].kernel


@pytest.mark.full
def test_an_image_with_channels_first(stored: Stored) -> None:
    model, x = nn.Conv2d(16, 32, 3), torch.randn(1, 16, 8, 8)
    with torch.no_grad():
        assert is_right(torch.compile(model, backend="tilewise")(x), exact(model, x))
    assert stored.made


@pytest.mark.parametrize("kind", [torch.int32, torch.complex64])
def test_types_without_kernels(stored, kind: torch.dtype, caplog) -> None:
    a, b = (torch.randn(*shape).mul(9).to(kind) for shape in ((4, 16), (16, 16)))
    with torch.no_grad():
        got = torch.compile(Square(), backend="tilewise")(a, b)
    assert torch.allclose(got, a @ b, rtol=1e-5) and not stored.made and not lines(caplog)


@pytest.mark.parametrize("ending", [".so", ".json"])
def test_a_corrupted_file_is_made_again(stored, cache, ending, caplog, monkeypatch) -> None:
    model, x = nn.Linear(20, 32), torch.randn(6, 20)
    assert check(model, x)[0].kernel
    for path in cache.glob(f"kernel-*{ending}"):
        write_whole(path, b"corrupted")
    for _ in range(2):
        stored.made.clear()
        torch.compiler.reset()
        assert check(model, x)[-1].kernel
    assert not stored.made, "the second time the new file is read"
    assert len(lines(caplog)) == 1 and "it is made again" in lines(caplog)[0]
    monkeypatch.setattr(kernels, "identity", lambda: "another toolchain")
    torch.compiler.reset()
    assert check(model, x)[-1].kernel and stored.made, "as it is after an upgrade"


def test_an_object_that_is_none(stored, monkeypatch, caplog) -> None:
    made = stored.object_files

    def broken(*given: str) -> object:
        files = vars(made(*given)) | {"object_bytes": b"\x7fELF, and nothing else"}
        return type("Files", (), files)

    monkeypatch.setattr(stored, "object_files", broken)
    (op,) = check(nn.Linear(20, 17), torch.randn(6, 20))
    assert not op.kernel and "cannot make" in op.reason
    assert len(lines(caplog)) == 1


def test_a_service_that_stops_after_the_look_up(stored, monkeypatch, caplog) -> None:
    made = Mock(side_effect=NoAnswerError("no answer from http://x"))
    monkeypatch.setattr(stored, "object_files", made)
    ops = check(nn.Sequential(nn.Linear(20, 41), nn.Linear(41, 43)), torch.randn(6, 20))
    assert not ops and made.call_count == 1 == len(lines(caplog)), "no other kernel is requested"


def test_a_kernel_with_another_result_is_not_used(stored: Stored) -> None:
    stored.computes = lambda problem: problem.replace(",bias", ",bias,epilogue=relu")
    (op,) = check(nn.Linear(20, 33), torch.randn(6, 20))
    assert (op.kernel, op.reason) == ("", "its result differs from PyTorch's")


def test_a_service_that_is_down_and_a_store_that_is_none(stored, caplog, monkeypatch, tmp_path):
    monkeypatch.setattr(choose, "open_backend", open_backend)
    (tmp_path / "store.db").write_text("no database")
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        server = f"http://127.0.0.1:{bound.getsockname()[1]}"
        for where in ({"server": server}, {"store": f"sqlite:///{tmp_path}/store.db"}) * 2:
            assert not check(nn.Linear(20, 35), torch.randn(6, 20), **where)
    assert [server in line for line in lines(caplog)] == [True, False]
    assert all("no kernels are used" in line and "\n" not in line for line in lines(caplog))
