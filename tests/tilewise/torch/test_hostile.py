"""Inputs and files that nobody should give: the result is right, with one line of log at most."""

import socket
from pathlib import Path

import pytest
import torch

from tests.tilewise.torch.stored import Stored, check, exact, lines
from tilewise.backends import choose
from tilewise.backends.choose import open_backend
from tilewise.kernels.system.files import write_whole
from tilewise.linked import kernels

nn = torch.nn


class Square(nn.Module):
    def forward(self, a, b):  # type: ignore[no-untyped-def]
        return a @ b


def test_aliased_inputs(stored: Stored, caplog: pytest.LogCaptureFixture) -> None:
    both = torch.randn(16, 16)
    assert check(Square(), both, both)[-1].kernel
    assert check(Square(), both, both.t())[-1].kernel
    assert check(Square(), both[:8], both)[-1].kernel
    assert not lines(caplog)


def test_an_input_that_is_written_to(stored: Stored) -> None:
    class Writes(nn.Module):
        def forward(self, a, b):  # type: ignore[no-untyped-def]
            a.add_(1.0)
            return a @ b

    a, b = torch.randn(4, 16), torch.randn(16, 16)
    with torch.no_grad():
        expected = (a.double() + 1) @ b.double()
        got = torch.compile(Writes(), backend="tilewise")(a, b)
        assert (got.double() - expected).norm() <= 1e-6 * expected.norm()


@pytest.mark.parametrize(
    "how",
    ["columns", "expanded",
     *(pytest.param(one, marks=pytest.mark.full) for one in ("rows", "transposed", "shifted"))],
)  # fmt: skip
def test_inputs_that_are_not_contiguous(stored: Stored, how: str) -> None:
    given = {
        "rows": torch.randn(12, 20)[::2],
        "columns": torch.randn(6, 40)[:, ::2],
        "transposed": torch.randn(20, 6).t(),
        "shifted": torch.randn(6 * 20 + 1)[1:].view(6, 20),
        "expanded": torch.randn(1, 20).expand(6, 20),
    }[how]
    assert check(nn.Linear(20, 32), given)[0].kernel


@pytest.mark.full
def test_an_image_with_channels_first(stored: Stored) -> None:
    model, x = nn.Conv2d(16, 32, 3), torch.randn(1, 16, 8, 8)
    with torch.no_grad():
        got, expected = torch.compile(model, backend="tilewise")(x), exact(model, x)
    assert stored.made and (got.double() - expected).norm() <= 1e-6 * expected.norm()


def test_an_empty_batch(stored: Stored, caplog: pytest.LogCaptureFixture) -> None:
    (op,) = check(nn.Linear(20, 32), torch.randn(0, 20))
    assert (op.kernel, op.reason) == ("", "an operand is empty") and not lines(caplog)


@pytest.mark.parametrize("kind", [torch.int32, torch.complex64])
def test_types_without_kernels(
    stored: Stored, kind: torch.dtype, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = (torch.randn(*shape).mul(9).to(kind) for shape in ((4, 16), (16, 16)))
    with torch.no_grad():
        got = torch.compile(Square(), backend="tilewise")(a, b)
    assert torch.allclose(got, a @ b, rtol=1e-5) and not stored.made and not lines(caplog)


def test_an_input_of_another_type_than_the_weights(stored: Stored) -> None:
    compiled = torch.compile(nn.Linear(20, 32), backend="tilewise")
    with pytest.raises(Exception, match="dtype"), torch.no_grad():  # as PyTorch alone
        compiled(torch.randn(6, 20, dtype=torch.float64))


@pytest.mark.parametrize("ending", [".so", ".json"])
def test_a_corrupted_file_is_made_again(
    stored: Stored, cache: Path, ending: str, caplog: pytest.LogCaptureFixture
) -> None:
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


def test_an_object_that_is_none(
    stored: Stored, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = stored.object_files

    def broken(*given: str) -> object:
        files = vars(made(*given)) | {"object_bytes": b"\x7fELF, and nothing else"}
        return type("Files", (), files)

    monkeypatch.setattr(stored, "object_files", broken)
    (op,) = check(nn.Linear(20, 17), torch.randn(6, 20))
    assert not op.kernel and "cannot make" in op.reason
    assert len(lines(caplog)) == 1


def test_a_kernel_with_another_result_is_not_used(stored: Stored) -> None:
    stored.computes = lambda problem: problem.replace(",bias", ",bias,epilogue=relu")
    (op,) = check(nn.Linear(20, 33), torch.randn(6, 20))
    assert (op.kernel, op.reason) == ("", "its result differs from PyTorch's")


def test_a_service_that_is_down(
    stored: Stored, cache: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = nn.Linear(20, 32), torch.randn(6, 20)
    assert check(model, x)[0].kernel
    monkeypatch.setattr(choose, "open_backend", open_backend)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        server = f"http://127.0.0.1:{bound.getsockname()[1]}"
        for target in (kernels.target_of(1), "cpu:host,threads=1"):
            monkeypatch.setattr(kernels, "target_of", lambda _threads, target=target: target)
            torch.compiler.reset()
            assert check(model, x, server=server)[-1].kernel, "a file of the cache"
        (op,) = check(nn.Linear(20, 35), x, server=server)
        assert (op.kernel, op.reason) == ("", "no kernel is stored")
        (line,) = lines(caplog)
        assert "only kernels of the cache folder are used" in line and server in line
        for path in cache.glob("kernel-*.so"):
            write_whole(path, b"corrupted")
        torch.compiler.reset()
        assert not check(model, x, server=server)[-1].kernel
        for path in cache.glob("kernel-*.so"):
            path.unlink()
    assert all("it is not used" in line for line in lines(caplog)[1:]) and lines(caplog)[1:]


def test_a_store_that_is_none(
    caplog: pytest.LogCaptureFixture, cache: Path, tmp_path: Path
) -> None:
    (tmp_path / "store.db").write_text("no database")
    store = f"sqlite:///{tmp_path}/store.db"
    check(nn.Linear(20, 36), torch.randn(6, 20), store=store)
    (line,) = lines(caplog)
    assert "only kernels of the cache folder" in line and "\n" not in line
