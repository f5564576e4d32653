import json
from pathlib import Path

import pytest

from tests.kernels.mlir.build import PACKED, schedule
from tests.kernels.mlir.proof.test_verify import (
    DEPTHWISE,
    MATMUL,
    PAYLOAD,
    SUM_OVER_K,
    demoted,
    script,
    tiled,
)
from tests.tilewise.conftest import Cli
from tilewise.kernels.mlir.cpu.script import emit_script


@pytest.mark.full
def test_a_script_of_ours_names_its_problem_in_its_header(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "script.mlir"
    path.write_text(emit_script(MATMUL, schedule(*PACKED)))
    done = cli("verify", str(path))
    assert done.code == 0, done.err
    assert f"problem   {MATMUL}" in done.out
    assert "forall 2 trips" in done.out and "GFLOP/s" in done.out
    found = json.loads(cli("verify", str(path), "--json").out)
    assert found["ok"] and found["problem"] == str(MATMUL)
    assert found["structure"][0] == "func @kernel"


def test_a_script_and_a_payload_of_somebody_else(cli: Cli, tmp_path: Path) -> None:
    path, payload = tmp_path / "script.mlir", tmp_path / "payload.mlir"
    path.write_text(tiled("[2, 0, 4]", 2))
    payload.write_text(PAYLOAD)
    done = cli("verify", str(path), "--payload", str(payload))
    assert done.code == 0, done.err
    assert "for 8 trips, step 2" in done.out and "without the script" in done.out
    path.write_text(tiled("[2, 2, 2, 2]", 2))
    failed = cli("verify", str(path), "--payload", str(payload))
    assert failed.code == 1
    assert failed.err.count("\n") == 1 and "apply: line 4: %t" in failed.err
    assert "applied   no" in failed.out


def test_an_error_in_the_payload_names_its_file(cli: Cli, tmp_path: Path) -> None:
    path, payload = tmp_path / "script.mlir", tmp_path / "payload.mlir"
    path.write_text(
        script("transform.structured.vectorize %op vector_sizes [1] : !transform.any_op")
    )
    payload.write_text(DEPTHWISE)
    failed = cli("verify", str(path), "--payload", str(payload))
    assert failed.code == 1 and failed.err.count("\n") == 1
    assert f"{payload}: apply: line 4 of the payload: %r = " in failed.err
    payload.write_text(DEPTHWISE.replace("%r =", "%r = %x +"))
    failed = cli("verify", str(path), "--payload", str(payload))
    assert failed.code == 1 and failed.err.count("\n") == 1
    assert f"{payload}: apply: payload: line 4: %r = " in failed.err


def test_a_race_is_refused_and_the_compilers_warning_is_printed(cli: Cli, tmp_path: Path) -> None:
    path, payload = tmp_path / "script.mlir", tmp_path / "payload.mlir"
    path.write_text(SUM_OVER_K)
    payload.write_text(PAYLOAD)
    failed = cli("verify", str(path), "--payload", str(payload))
    assert failed.code == 1
    assert "race: iterations of scf.forall depend on each other" in failed.err
    assert "warning   loc(" in failed.out and "tiling is not thread safe at axis #2" in failed.out


def test_a_script_that_loses_precision_is_wrong(cli: Cli, tmp_path: Path) -> None:
    path, payload = tmp_path / "script.mlir", tmp_path / "payload.mlir"
    path.write_text(demoted("f16"))
    payload.write_text(PAYLOAD)
    failed = cli("verify", str(path), "--payload", str(payload), "--json")
    assert failed.code == 1
    assert failed.err.count("\n") == 1 and "wrong: the result is" in failed.err
    assert not json.loads(failed.out, parse_constant=pytest.fail)["ok"]


HUGE = "matmul:m=100000,n=100000,k=100000,dtype=f32"


@pytest.mark.full
def test_what_makes_no_sense_is_bad_input(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "script.mlir"
    path.write_text(tiled("[2]", 1))
    for arguments, says in (
        ((str(path),), "names no problem; give --payload or --problem"),
        ((str(path), "--problem", "matmul:m=1"), "matmul"),
        ((str(path), "--problem", f"{HUGE}"), "this machine has"),
        ((str(path), "--problem", str(MATMUL), "--payload", "x"), "not both"),
        ((str(path), "--payload", str(tmp_path / "absent")), "cannot read"),
        ((str(tmp_path / "absent"),), "cannot read"),
        *(
            ((str(path), "--problem", str(MATMUL), f"--seconds={seconds}"), "give more than 0")
            for seconds in ("nan", "inf", "1e30", "-1", "0")
        ),
    ):
        done = cli("verify", *arguments)
        assert (done.code, done.out) == (2, "")
        assert says in done.err and done.err.count("\n") == 1
