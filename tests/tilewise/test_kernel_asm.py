import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from tests.tilewise.conftest import Cli, Stored
from tilewise import Client
from tilewise.backends import remote as remote_module
from tilewise.service.app import create_app
from tilewise.service.settings import Settings

PROBLEM = "matmul:m=40,n=50,k=30,dtype=f32,bias,epilogue=relu"


@pytest.fixture
def stored(store: Stored) -> None:
    store(PROBLEM)


@pytest.fixture
def server(database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A service in this process, which the client reaches without a network."""
    with TestClient(create_app(Settings(db=database, allowed_hosts="testserver"), 0)) as answering:

        def forward(request: httpx.Request) -> httpx.Response:
            answer = answering.request(
                request.method,
                request.url.raw_path.decode(),
                content=request.content,
                headers={"Content-Type": request.headers.get("Content-Type", "")},
            )
            kind = {"Content-Type": answer.headers["Content-Type"]}
            return httpx.Response(answer.status_code, headers=kind, content=answer.content)

        transport = httpx.MockTransport(forward)
        monkeypatch.setattr(remote_module, "Client", lambda url: Client(url, transport))
        yield "http://tilewise.test"


@pytest.mark.full
def test_the_kernel_runs_on_its_own(cli: Cli, stored: None, tmp_path: Path) -> None:
    out = tmp_path / "kernel.py"
    assert cli("kernel", PROBLEM, "-o", str(out)).code == 0
    text = out.read_text()
    assert cli("kernel", PROBLEM).out == text
    assert json.loads(cli("kernel", PROBLEM, "--json").out) == {"problem": PROBLEM, "kernel": text}
    best = json.loads(cli("show", PROBLEM, "--json").out)["best"]
    docstring = ast.get_docstring(ast.parse(text))
    assert docstring is not None
    for told in (PROBLEM, best["hash"], f"{best['gflops']:.1f} GFLOP/s", "C += A * B"):
        assert told in docstring
    command = [sys.executable, "-I", str(out)]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    assert done.stdout.startswith(f"OK {PROBLEM}"), done.stderr


def test_the_inner_loop_and_its_counts(cli: Cli, stored: None) -> None:
    text = cli("asm", PROBLEM).out
    for told in ("inner loop", "multiply-adds", "stack references", "spills: "):
        assert told in text
    told = json.loads(cli("asm", PROBLEM, "--json").out)
    assert told["problem"] == PROBLEM
    assert told["fma"] > 0
    assert told["counts"]["instructions"] > told["fma"]


@pytest.mark.parametrize("command", ["kernel", "asm"])
def test_nothing_stored(cli: Cli, command: str) -> None:
    ran = cli(command, PROBLEM)
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.count("\n") == 1
    assert "tilewise tune makes one" in ran.err
