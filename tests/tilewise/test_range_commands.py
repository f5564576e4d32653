"""A range is tuned, shown and made an object; one of its sizes is answered by it."""

import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.tilewise.conftest import Cli

RANGE = "matmul:m=1..6,n=20,k=8,dtype=f32"
ONE = RANGE.replace("1..6", "5")
MODEL = """
func.func @main(%a: tensor<?x8xf32>, %b: tensor<8x20xf32>) -> tensor<?x20xf32> {
  %zero = arith.constant 0.0 : f32
  %first = arith.constant 0 : index
  %rows = tensor.dim %a, %first : tensor<?x8xf32>
  %c = tensor.empty(%rows) : tensor<?x20xf32>
  %f = linalg.fill ins(%zero : f32) outs(%c : tensor<?x20xf32>) -> tensor<?x20xf32>
  %r = linalg.matmul ins(%a, %b : tensor<?x8xf32>, tensor<8x20xf32>)
      outs(%f : tensor<?x20xf32>) -> tensor<?x20xf32>
  return %r : tensor<?x20xf32>
}
"""


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_range_is_tuned_and_answers_for_its_sizes(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = cli("tune", RANGE, "--trials", "2", "--json")
    assert ran.code == 0, ran.err
    tuned = json.loads(ran.out)
    assert tuned["problem"] == RANGE and tuned["samples"][-1]["size"] == 6
    assert json.loads(cli("show", RANGE, "--json").out)["variants"] == tuned["variants"]
    shown = json.loads(cli("show", ONE, "--json").out)
    served = next(at for first, last, at in tuned["spans"] if first <= 5 <= last)
    assert shown["best"]["hash"] == tuned["variants"][served]["hash"]
    made = json.loads(cli("kernel", RANGE, "--format", "object", "--json").out)
    assert made["symbol"].startswith("tilewise_matmul_m1to6_n20_k8_f32")
    assert made["proof"]["max_error"] <= made["proof"]["tolerance"]
    assert "int64_t m" in Path(made["header"]).read_text()
    script = cli("script", RANGE, "--with-payload").out
    assert "m=1:" in script and "m=6:" in script and "%C: tensor<?x20xf32>" in script

    model = tmp_path / "model.mlir"
    model.write_text(MODEL)
    planned = cli("plan", str(model), "--dim", "0.0=5", "--layouts", "model", "--json")
    assert planned.code == 0 and f"takes its variant of {RANGE}" in planned.err, planned.err
    (node,) = json.loads(planned.out)["nodes"]
    assert node["schedule"]["hash"] == shown["best"]["hash"]

    over = (str(model), "--dim", "0.0=1..6")
    ran = cli("model", *over, "--no-ops", "--json")
    made = json.loads(ran.out)
    assert ran.code == 0 and "tunes" not in ran.err and made["right"], ran.err
    assert [(op["problem"], op["count"], op["replaced"]) for op in made["ops"]] == [(RANGE, 1, 1)]
    assert made["arguments"] == ["tensor<?x8xf32>", "tensor<8x20xf32>"]
    assert [(one["size"], one["inside"]) for one in made["sizes"]] == [
        ("0.0=7", False), ("0.0=1", True), ("0.0=5", True), ("0.0=6", True)
    ]  # fmt: skip
    for command in (("model", *over, "--as", "native"), ("model", *over, "--as", "packs")):
        refused = cli(*command)
        assert refused.code == 2 and refused.err == (
            "tilewise: dim 0.0 has a range; give one size, or make an IREE library by tilewise "
            "model --as iree --dim\n"
        )
    for command in (("script", *over, "--flavor", "iree"), ("model", *over, "--as", "iree")):
        ran = cli(*command)  # so small an op may be left to IREE
        assert RANGE in ran.out + ran.err and ran.code in (0, 3), ran.err


@pytest.mark.parametrize("command", ["asm", "trials"])
def test_commands_of_one_size_refuse_ranges(command: str, cli: Cli) -> None:
    ran = cli(command, RANGE)
    assert ran.code == 2
    assert ran.err == "tilewise: matmul: m='1..6' is a range; give one size here\n"


def test_a_range_that_is_not_stored_is_missing(cli: Cli) -> None:
    for command in (("kernel", RANGE, "--format", "object"), ("script", RANGE)):
        ran = cli(*command)
        assert ran.code == 3 and "nothing is stored; tilewise tune makes one" in ran.err


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_service_tunes_a_range_and_makes_its_code(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    """`tilewise serve` as users start it, with a worker that searches for real."""
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "tilewise", "serve", "--port", "0", "--db", database]
    with subprocess.Popen(
        [*command, "--workers", "1"], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            url = next(found[0] for line in lines if (found := re.search(r"http://[\d.:]+", line)))
            threading.Thread(target=process.stderr.read, daemon=True).start()
            at = ("--server", url)
            ran = cli("tune", RANGE, "--trials", "2", "--json", *at)
            assert ran.code == 0, ran.err
            tuned = json.loads(ran.out)
            assert (
                json.loads(cli("show", RANGE, "--json", *at).out)["variants"] == tuned["variants"]
            )
            made = cli("kernel", RANGE, "--format", "object", "--json", *at)
            assert made.code == 0, made.err
            assert "int64_t m" in Path(json.loads(made.out)["header"]).read_text()
        finally:
            process.terminate()
