import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest

from tests.tilewise.conftest import Cli
from tilewise import Client, MissingError
from tilewise.client import Event, JobEnded, PhaseReached, TrialEnded
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import detect

PROBLEM = "matmul:m=70,n=90,k=50,dtype=f32"
CONV = "conv2d:n=1,h=9,w=11,ci=8,co=24,kh=3,kw=3,stride=2,pad=1,dtype=f32,bias,epilogue=relu"


@pytest.mark.parametrize("problem", [PROBLEM, pytest.param(CONV, marks=pytest.mark.full)])
def test_the_main_job_on_this_machine(cli: Cli, tmp_path: Path, problem: str) -> None:
    tuned = cli("tune", problem, "--trials", "6", "--peers", "--json")
    assert tuned.code == 0, tuned.err
    result = json.loads(tuned.out)
    assert result["problem"] == problem
    assert len(result["key"]) == 64
    assert result["trials"]["asked"] == 6
    assert sum(result["trials"][k] for k in ("timed", "pruned", "failed")) == 6
    best = result["best"]
    assert best["hash"] == Schedule.from_json(best["steps"]).hash
    assert best["interval"][0] <= best["gflops"] <= best["interval"][1]
    assert 0 < best["peak_fraction"] < 1.1
    assert ("openblas" in result["peers"]) == problem.startswith("matmul")
    proof = result["proof"]
    assert proof["applied"]
    assert proof["executed"]
    assert proof["max_error"] <= proof["tolerance"]
    assert proof["mlir"].startswith("iree-base-compiler ")

    shown = cli("show", problem, "--json")
    assert json.loads(shown.out) == result
    text = cli("show", problem).out
    assert best["hash"] in text
    assert "proven" in text

    out = tmp_path / "script.mlir"
    assert cli("script", problem, "-o", str(out)).code == 0
    assert "@__transform_main" in out.read_text()
    assert problem in out.read_text()
    with_payload = cli("script", problem, "--with-payload").out
    assert "func.func" in with_payload
    assert "@__transform_main" in with_payload

    rows = list(csv.DictReader(cli("trials", problem, "--format", "csv").out.splitlines()))
    assert len(rows) == 6
    assert json.loads(cli("trials", problem, "--json").out)[0]["number"] == 0
    assert len(cli("trials", problem).out.splitlines()) == 7

    again = cli("tune", problem, "--trials", "6", "--peers", "--json")
    if result["best"]["quality"] == "noisy":  # beside busy neighbours it is measured again
        assert "finals" in again.err and json.loads(again.out)["previous"]
        return
    assert "answered from the store" in again.err
    assert json.loads(again.out) == result


@pytest.mark.full
def test_a_kernel_for_two_threads(cli: Cli, tmp_path: Path) -> None:
    target = detect().with_threads(2).canonical
    problem = "matmul:m=96,n=160,k=64,dtype=f32"
    if detect().cores < 2:
        assert cli("tune", problem, "--target", target).code == 2
        return
    tuned = cli("tune", problem, "--target", target, "--trials", "8", "--peers", "--json")
    assert tuned.code == 0, tuned.err
    result = json.loads(tuned.out)
    assert result["target"] == target
    assert result["peers"]["openblas"]["gflops"] > 0
    assert result["proof"]["executed"]
    assert cli("show", problem).code == 3, "another target's result is not this one's"
    assert "on one thread" in cli("show", problem, "--target", target).out

    out = tmp_path / "kernel.py"
    assert cli("kernel", problem, "--target", target, "-o", str(out)).code == 0
    done = subprocess.run([sys.executable, str(out)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"OK {problem}")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    process = start_service(tmp_path)
    try:
        yield wait_until_ready(process), process
    finally:
        process.terminate()
        process.wait(30)


def start_service(folder: Path, **more: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tilewise", "serve", "--port", "0"]
    environment = os.environ | {
        "TILEWISE_DB": f"sqlite:///{folder / 'tilewise.service.db'}",
        **more,
    }
    return subprocess.Popen(command, env=environment)


def wait_until_ready(process: "subprocess.Popen[bytes]") -> str:
    """The URL of a service, on the port that the system gave it."""
    deadline = time.monotonic() + 120
    while True:
        assert process.poll() is None, "the service ended"
        assert time.monotonic() < deadline, "the service did not get ready"
        for port in listening_ports(process.pid):
            url = f"http://127.0.0.1:{port}"
            with suppress(httpx.TransportError):
                if httpx.get(f"{url}/readyz").is_success:
                    return url
        time.sleep(0.1)


def listening_ports(pid: int) -> list[int]:
    connections = psutil.Process(pid).net_connections("tcp")
    return [one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN]


@pytest.mark.full
def test_the_main_job_through_a_service(service, cli: Cli) -> None:
    url, process = service
    with Client(url) as client:
        with pytest.raises(MissingError):
            client.schedule(PROBLEM)
        seen: list[Event] = []
        result = client.tune(PROBLEM, seen.append, trials=6)
        trials = [event.trial.number for event in seen if isinstance(event, TrialEnded)]
        assert trials == list(range(6))
        assert isinstance(seen[-1], JobEnded) and seen[-1].job.state == "done"
        phases = [event.phase.name for event in seen if isinstance(event, PhaseReached)]
        assert {"search", "proof", "finals"} <= set(phases)
        assert result.proof and result.proof.executed
        assert "@__transform_main" in (client.script(PROBLEM).text or "")
    remote = cli("show", PROBLEM, "--server", url, "--json")
    assert json.loads(remote.out)["best"] == result.document["best"]
    assert len(cli("trials", PROBLEM, "--server", url).out.splitlines()) == 7
    exported = json.loads(cli("trials", PROBLEM, "--server", url, "--format", "t4").out)
    assert len(exported["results"]) == 6
    assert all(r["times"]["runtimes"] for r in exported["results"] if r["correctness"])
    assert "@__transform_main" in cli("script", PROBLEM, "--server", url).out
    assert cli("tune", "gemm:x", "--server", url).code == 2
    assert cli("show", CONV, "--server", url).code == 3
    resident = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    assert resident * os.sysconf("SC_PAGE_SIZE") < 300 << 20
