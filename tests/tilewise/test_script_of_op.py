import json
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.kernels.mlir.op_scripts.ops import generic
from tests.tilewise.conftest import Cli
from tilewise.backends.local import LocalBackend
from tilewise.cli.commands.scripts.op_of_module import _schedules
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Register, Schedule

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

PROBLEM = "matmul:m=24,n=64,k=24,dtype=f32,transpose_b,init=accumulate"
MODULE = generic("k, j, i", ("k, i", "j, k", "i, j"), ("24x24", "64x24", "24x64"))


@pytest.fixture
def module(tmp_path: Path) -> str:
    path = tmp_path / "model.mlir"
    path.write_text(MODULE)
    return str(path)


@pytest.mark.parametrize(
    ("failure", "wanted"), [(None, (3, 1, 2)), ("slower", (1, 2, 3))], ids=["proven", "failed"]
)
def test_the_schedule_of_the_problems_own_script_comes_first(
    failure: str | None, wanted: tuple[int, ...]
) -> None:
    """Behind it the fastest kernel, and the others as fast as they are."""
    rows = {n: Schedule((Register(n, 16),)) for n in (1, 2, 3)}
    told = {n: {"hash": one.hash, "steps": one.to_json()} for n, one in rows.items()}
    backend = Mock(LocalBackend)
    backend.show.return_value = {
        "best": told[1],
        "proof": {"failure": failure, "hash": rows[3].hash},
    }
    backend.trials.return_value = [
        {**told[n], "state": "timed", "gflops": 9.0 - n} for n in (3, 1, 2)
    ]
    found = list(_schedules(backend, [parse_problem(PROBLEM)], "host", lambda _, one: one))
    assert found == [rows[n] for n in wanted]


@pytest.mark.full
def test_a_schedule_of_the_store_is_proven_on_the_op(cli: Cli, module: str, tmp_path: Path) -> None:
    named = json.loads(cli("import", module, "--json").out)["problems"][0]["problem"]
    missing = cli("script", module)
    assert missing.code == 3
    assert missing.err == f"tilewise: no schedule of {named} is stored; tilewise tune makes one\n"
    assert cli("tune", named, "--trials", "4").code == 0
    ran = cli("script", module, "--json")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    of_script = json.loads(cli("show", named, "--json").out)["proof"]["hash"]
    assert told["problem"] == named
    assert told["place"] == "@f 3:8 linalg.generic"
    assert told["schedule"]["hash"] == of_script
    assert Schedule.from_json(told["schedule"]["steps"]).hash == of_script
    assert told["proof"]["max_error"] <= told["proof"]["tolerance"]
    assert f"// schedule: {of_script}" in told["script"]
    file = tmp_path / "whole.mlir"
    assert cli("script", module, "--place", "1", "--with-payload", "-o", str(file)).code == 0
    iree_opt = Path(sys.executable).with_name("iree-opt")
    applied = subprocess.run(
        [iree_opt, "--transform-interpreter", file], capture_output=True, text=True, check=False
    )
    assert applied.returncode == 0, applied.stderr
    assert "func.func @kernel" in applied.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--place", "2"], "place='2': no op has the number 2; the module has 1"),
        (
            ["--place", "1", "--flavor", "iree"],
            "--place is of an op of MODULE.mlir, for --flavor cpu",
        ),
        (["--l1-bytes", "65536"], "--l1-bytes is for --flavor air, not cpu"),
        (["other.mlir"], "a script is of one op; give one module, with --place"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    cli: Cli, module: str, options: list[str], message: str
) -> None:
    ran = cli("script", module, *options)
    assert (ran.code, ran.err) == (2, f"tilewise: {message}\n")


def test_an_accuracy_is_of_a_module_that_says_none(cli: Cli, module: str) -> None:
    for options, told in (
        ((PROBLEM,), "is of MODEL.mlir; a problem says it itself, as "),
        ((module, "--packs"), "packed scripts use direct loops only; leave it out"),
        ((module, "--flavor", "iree", "--plan", "plan.json"), "the plan sets the accuracy"),
    ):
        ran = cli("script", *options, "--accuracy", "strict")
        assert ran.code == 2 and ran.err.count("\n") == 1, ran.err
        assert ran.err.startswith("tilewise: --accuracy strict") and told in ran.err
    missing = cli("script", module, "--accuracy", "strict")
    assert missing.code == 3
    assert "init=accumulate,accuracy=strict is stored" in missing.err


WEIGHTS = """
func.func @layer(%x: tensor<20x24xf32>) -> tensor<20x32xf32> {
  %w = arith.constant dense<0.5> : tensor<24x32xf32>
  %b = arith.constant dense<0.25> : tensor<32xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<20x32xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<20x32xf32>) -> tensor<20x32xf32>
  %p = linalg.matmul ins(%x, %w : tensor<20x24xf32>, tensor<24x32xf32>)
      outs(%z : tensor<20x32xf32>) -> tensor<20x32xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>,
      affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%p, %b : tensor<20x32xf32>, tensor<32xf32>) outs(%e : tensor<20x32xf32>) {
  ^bb0(%s: f32, %c: f32, %o: f32):
    %t = arith.addf %s, %c : f32
    linalg.yield %t : f32
  } -> tensor<20x32xf32>
  return %r : tensor<20x32xf32>
}
"""


CHANNELS_FIRST = """
func.func @f(%x: tensor<1x8x6x6xf32>, %w: tensor<16x8x3x3xf32>) -> tensor<1x16x4x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x16x4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<1x16x4x4xf32>) -> tensor<1x16x4x4xf32>
  %r = linalg.conv_2d_nchw_fchw ins(%x, %w : tensor<1x8x6x6xf32>, tensor<16x8x3x3xf32>)
      outs(%z : tensor<1x16x4x4xf32>) -> tensor<1x16x4x4xf32>
  return %r : tensor<1x16x4x4xf32>
}
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("text", "has"),
    [
        (WEIGHTS, "bias,weights=constant"),  # the op by itself has neither
        (CHANNELS_FIRST, "layout=nchw_fchw"),  # the script's loops are those of pixels first
    ],
    ids=["weights", "channels first"],
)
def test_what_import_names_is_what_has_to_be_tuned(
    cli: Cli, tmp_path: Path, text: str, has: str
) -> None:
    path = tmp_path / "module.mlir"
    path.write_text(text)
    named = json.loads(cli("import", str(path), "--json").out)["problems"][0]["problem"]
    assert has in named
    missing = cli("script", str(path))
    assert missing.code == 3 and named in missing.err
    alone = "matmul:m=20,n=32,k=24,dtype=f32"
    assert text != WEIGHTS or f"no schedule of {named} or {alone} is stored" in missing.err
    assert cli("tune", named, "--trials", "2").code == 0
    ran = cli("script", str(path), "--json")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert text != WEIGHTS or told["problem"] == alone
    assert told["proof"]["max_error"] <= told["proof"]["tolerance"]
