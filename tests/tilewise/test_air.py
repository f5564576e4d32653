import json
from pathlib import Path

import pytest

from tests.tilewise.conftest import Cli

PROBLEM = "matmul:m=64,n=64,k=128,dtype=i32"


def test_a_script_needs_no_tuning_and_no_store(cli: Cli, tmp_path: Path) -> None:
    ran = cli("script", PROBLEM, "--flavor", "air")
    assert (ran.code, ran.err) == (0, "")
    header, _, body = ran.out.partition("module")
    assert "modelled, not measured" in header
    assert "executed on a processor, exact" in header
    assert "func.func @kernel" not in body
    assert not (tmp_path / "results.db").exists()


def test_options_are_the_declared_machine(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "air.mlir"
    ran = cli(
        "script", PROBLEM, "--flavor", "air", "--l1-bytes", "4096", "--l2-bytes", "32768",
        "--result", "l2", "--with-payload", "-o", str(path),
    )  # fmt: skip
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    text = path.read_text()
    assert "L1 of 4096 bytes, L2 of 32768" in text
    assert "func.func @kernel" in text
    assert "result L1 to L2 " in text


def test_json(cli: Cli) -> None:
    answer = json.loads(cli("script", PROBLEM, "--flavor", "air", "--json").out)
    assert (answer["problem"], answer["flavor"]) == (PROBLEM, "air")
    assert answer["script"].startswith(f"// problem:  {PROBLEM}\n")


@pytest.mark.parametrize(
    "problem",
    [
        "conv2d:n=1,h=8,w=8,ci=8,co=8,kh=3,kw=3,dtype=f32",
        "matmul:batch=2,m=8,n=8,k=8,dtype=f32",
        "matmul:m=8,n=8,k=8,dtype=f32,bias",
    ],
)
def test_what_has_no_air_script_does_not_exist(cli: Cli, problem: str) -> None:
    ran = cli("script", problem, "--flavor", "air")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.count("\n") == 1
    assert problem in ran.err and "yet" in ran.err
