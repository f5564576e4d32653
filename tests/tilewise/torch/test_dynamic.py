"""Dynamic sizes: kernels of ranges, guards where a range ends, exported programs."""

import multiprocessing
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.export import Dim, export

import tilewise.torch as door
from tests.tilewise.torch.stored import Stored, exact, is_right, linear, lines
from tilewise.kernels.system.children import child_environment
from tilewise.linked import verdicts
from tilewise.linked.libraries import cache_folder

nn = torch.nn
RANGE = "matmul:m=1..64,n=32,k=20,dtype=f32,bias,epilogue=relu,weights=constant"
SIZES = (6, 5, 64, 65, 1, 0, 7, 200, 3)
"""The first two make dims dynamic; 0 and 1 are compiled by themselves; 65 and 200 are outside."""


def uses(model: Any) -> list[tuple[str, bool]]:
    """Return the size of each op, and whether it uses a kernel."""
    found = [(op.problem.partition("m=")[2].partition(",")[0], op) for op in door.report(model)]
    return [(size, bool(op.kernel)) for size, op in found]


@pytest.mark.parametrize("dynamic", [True, None])
@torch.no_grad()
def test_sizes_in_and_outside_of_a_range(stored, caplog, dynamic: bool | None) -> None:
    stored.problems = {RANGE}
    every = [("1..64", True), ("1..64", False), ("", False)]
    for sizes, expected in ((SIZES + SIZES, every), ((7,), every[:1])):
        model = linear()
        compiled = torch.compile(model, backend="tilewise", dynamic=dynamic)
        for rows in sizes:
            wide = torch.randn(rows, 40)
            x = wide[:, ::2] if rows == 5 else wide[:, 20:].contiguous()
            assert is_right(compiled(x), exact(model, x))
        found = dict.fromkeys(uses(model))  # other strides have other graphs
        assert list(found) == expected, "sizes of a range share one graph, and others another"
    assert not lines(caplog)
    with pytest.raises(Exception, match="dtype"):
        compiled(torch.randn(6, 20, dtype=torch.float64))


@torch.no_grad()
def test_a_product_over_a_size_and_sizes_past_the_usual_ones(stored: Stored) -> None:
    mean, model = lambda x: (x.mT @ x) / x.shape[1] if x.shape[1] > 100 else x, linear()
    compiled = torch.compile(mean, backend="tilewise", dynamic=True)
    for x in (torch.randn(2, rows, 20) for rows in (200, 170)):
        torch.testing.assert_close(compiled(x), mean(x))
    assert all(door.problems(model, torch.randn(rows, 20)) for rows in range(1, 11))


@torch.no_grad()
def test_declared_bounds_have_to_be_in_a_range(stored: Stored) -> None:
    for last, is_used in ((64, True), (65, False)):
        torch.compiler.reset()
        stored.problems, model, x = {RANGE}, linear(), torch.randn(6, 20)
        torch._dynamo.mark_dynamic(x, 0, min=1, max=last)
        wanted = RANGE.replace("64", str(last))
        assert door.problems(model, x) == [wanted]
        compiled = torch.compile(model, backend="tilewise", dynamic=False)
        for given in (x, torch.randn(last, 20)):
            assert is_right(compiled(given), exact(model, given))
        assert uses(model) == [(f"1..{last}", is_used)]
        stored.problems = set()
        torch.compiler.reset()
        compiled = torch.compile(model, backend="tilewise", options={"trials": 1})
        assert is_right(compiled(x), exact(model, x))
        assert stored.searched.pop() == wanted and uses(model)[-1] == (f"1..{last}", True)


class Tokens(nn.Module):
    """A product of heads, and linears of sequences with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(20, 32), nn.Linear(32, 20)

    def forward(self, x, w):  # type: ignore[no-untyped-def]
        return x + self.down(nn.functional.gelu(self.up(x))), x @ w


@pytest.mark.parametrize("cast", [False, True])
@torch.no_grad()
def test_sequences_of_any_length_and_number(stored: Stored, cast: bool) -> None:
    model, w = Tokens(), torch.randn(4, 20, 16)
    compiled = torch.compile(model, backend="tilewise", options={"sizes": (1, 32)})
    for tokens in (6, 9, 32):
        x = torch.randn(4, tokens, 20)
        with torch.autocast("cpu", torch.bfloat16, enabled=cast):
            got = compiled(x, w)
        assert all(map(is_right, got, exact(model, x, w), [1e-2 if cast else 1e-6] * 2))
    found = {op.problem.partition(",dtype")[0] for op in door.report(model)[3:] if op.kernel}
    assert found == {
        "matmul:m=4..128:4,n=32,k=20",
        "matmul:m=4..128:4,n=20,k=32",
        "matmul:batch=4,m=1..32,n=16,k=20",
    }


@torch.no_grad()
def test_images_in_batches(stored: Stored) -> None:
    last = {"memory_format": torch.channels_last}
    model = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()).to(**last)
    compiled = torch.compile(model, backend="tilewise", options={"sizes": (1, 4)})
    for batch in (2, 3, 4, 5):
        x = torch.randn(batch, 16, 6, 5).to(**last)
        torch._dynamo.maybe_mark_dynamic(x, 0)
        assert is_right(compiled(x), exact(model, x))
    (op,) = door.report(model)  # PyTorch limits n itself, to choose an algorithm
    assert op.kernel and op.problem.startswith("conv2d:n=1..")


@torch.no_grad()
def test_a_range_with_a_slow_size_is_left_to_pytorch(stored, monkeypatch) -> None:
    times = iter([(1e-6, 2e-6), (3e-6, 2e-6), (1e-6, 2e-6)])
    monkeypatch.setattr(verdicts, "in_turns", lambda *_, **__: next(times))
    stored.problems, model, x = {RANGE}, linear(), torch.randn(6, 20)
    assert is_right(torch.compile(model, backend="tilewise", dynamic=True)(x), exact(model, x))
    (op,) = door.report(model)
    assert (op.reason, op.kernel_us, op.torch_us) == ("PyTorch is faster", 3.0, 2.0)
    assert not list(times), "both ends and a size between them"


def _child(compiled: Any, x: Any, expected: Any) -> None:
    with torch.no_grad():
        sys.exit(0 if is_right(compiled(x), expected) else 1)


@torch.no_grad()
def test_threads_and_forks_share_a_graph(stored: Stored) -> None:
    stored.problems, model = {RANGE}, linear()
    compiled = torch.compile(model, backend="tilewise", dynamic=True)
    inputs = [torch.randn(2 + rows % 60, 20) for rows in range(64)]
    compiled(inputs[0])
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(torch.no_grad()(compiled), inputs))
    assert all(is_right(one, exact(model, x)) for one, x in zip(got, inputs, strict=True))
    given = (compiled, inputs[9], exact(model, inputs[9]))
    child = multiprocessing.get_context("fork").Process(target=_child, args=given)
    child.start()
    child.join(60)
    assert child.exitcode == 0 and uses(model) == [("1..64", True)]


def exported(model: nn.Module) -> torch.export.ExportedProgram:
    rows = {0: Dim("rows", min=2, max=64)}
    return export(model, (torch.randn(6, 20),), dynamic_shapes=(rows,))


@torch.no_grad()
def test_an_exported_program(stored: Stored) -> None:
    stored.problems, model = {RANGE}, linear()
    module = exported(model).module()
    compiled = torch.compile(module, backend="tilewise", dynamic=True)
    for rows in (6, 64):
        x = torch.randn(rows, 20)
        assert is_right(compiled(x), exact(model, x))
    assert uses(module) == [("1..64", True)]


LOADED = """
import sys, torch, tilewise.torch
torch.set_num_threads(1)
package = tilewise.torch.load_package(sys.argv[1])
for x, expected in torch.load(sys.argv[2]):
    assert (package(x).double() - expected).norm() <= 1e-6 * expected.norm()
"""


@pytest.mark.full
@torch.no_grad()
def test_a_package_in_another_process(stored: Stored, tmp_path: Path) -> None:
    stored.problems, model = {RANGE}, linear()
    package, given = tmp_path / "model.pt2", tmp_path / "given.pt"
    (folder := tmp_path / "model.pt2.kernels").mkdir()
    (folder / "kernel-old.so").touch()  # of an earlier package
    door.compile_package(exported(model), package)
    door.load_package(package)
    door.compile_package(exported(model), package)  # whose kernels are of the loaded one, too
    inputs = [torch.randn(rows, 20) for rows in (6, 2, 64)]
    torch.save([(x, exact(model, x).detach()) for x in inputs], given)
    command = [sys.executable, "-c", LOADED, str(package), str(given)]
    for is_whole in (True, False):
        environment = child_environment(TILEWISE_CACHE_DIR=str(cache_folder().parent))
        done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
        assert (done.returncode == 0) == is_whole, done.stderr
        for path in folder.glob("*.so"):
            path.write_bytes(b"corrupted")
    assert "sha256" in done.stderr
