import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from examples.models.graph import Graph, Value
from examples.models.spellings import spelled
from tests.cases import some
from tests.kernels.dispatches.test_extraction import turned_result
from tests.tilewise.conftest import Cli, written
from tilewise.kernels.schedule import Pack, Prefetch, Register, Schedule
from tilewise.kernels.target.model import Target
from tilewise.search.libraries import library
from tilewise.search.libraries.gain import Gain
from tilewise.search.networks import cold_weights
from tilewise.search.networks.costs import LayerTimes, Timed

pytest.importorskip("iree.runtime", reason="IREE's runtime is absent")

FIRST = "matmul:m=8,n=96,k=64,dtype=f32,bias,epilogue=relu,weights=constant"
SECOND = "matmul:m=8,n=40,k=96,dtype=f32,bias,weights=constant"
AHEAD = Schedule((Pack("B"), Prefetch("B"), Register(rows=4, cols=16)))
FILES = {
    *("lib.mlir", "problems.txt", "report.json"),
    *("default.vmfb", "data_tiling.vmfb", "library.vmfb", "library_data_tiling.vmfb"),
    "reference.vmfb",
}


GRAPH = Graph("two", Value("given", (8, 64)))
GRAPH.linear(GRAPH.linear(GRAPH.given, 96, relu=True), 40)
TWO = spelled(GRAPH)


def accumulating(name: str, more: str = "") -> str:
    """Return a function that adds a product to its third argument."""
    c = "tensor<8x96xf32>"
    return (
        f"func.func @{name}(%a: tensor<8x64xf32>, %b: tensor<64x96xf32>, %c: {c}{more}) -> {c} {{\n"
        f"  %r = linalg.matmul ins(%a, %b : tensor<8x64xf32>, tensor<64x96xf32>) outs(%c : {c}) "
        f"-> {c}\n  return %r : {c}\n}}\n"
    )


def modelled(cli: Cli, folder: Path, text: str, *options: str) -> Any:
    """Return the report of a model, whose library is made in the folder `made`."""
    path, made = written(folder / "model.mlir", text), str(folder / "made")
    return cli("model", path, "-o", made, "--trials", "1", "--no-ops", "--json", *options).json


@pytest.mark.full
def test_a_model_is_tuned_compiled_and_compared(cli: Cli, tmp_path: Path) -> None:
    found = modelled(cli, tmp_path, TWO)
    assert [(op["problem"], op["count"], op["replaced"]) for op in found["ops"]] == [
        (FIRST, 1, 1), (SECOND, 1, 1)
    ]  # fmt: skip
    assert found["arguments"] == ["tensor<8x64xf32>"] and found["entry"] == "main"
    assert found["accuracy"] == "standard"
    assert found["right"] and all(form["time_ms"] > 0 for form in found["forms"].values())
    assert found["forms"]["default"]["right"] and found["forms"]["default"]["overwrites"] == []
    assert found["forms"]["library"]["deviation"] <= found["tolerance"] < 1e-4
    assert {path.name for path in (tmp_path / "made").iterdir()} == FILES


@pytest.mark.full
def test_an_op_that_loses_a_part_is_tuned_and_called_without_it(cli, untimed, tmp_path) -> None:
    """Its result lies in another order, and relu follows a reshape."""
    found = modelled(cli, tmp_path, turned_result("reshaped"))
    (op,) = found["ops"]
    assert (op["problem"], op["replaced"]) == ("matmul:batch=5,m=3,n=16,k=8,dtype=f32", 1)
    assert (tmp_path / "made" / "problems.txt").read_text().startswith(f"{op['problem']} ")


@pytest.mark.full
def test_kernels_are_those_that_are_fastest_with_weights_of_other_layers_between(
    cli: Cli, untimed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, int] = {}

    def timed_cold(costs: LayerTimes, _target: Target, weights_bytes: int) -> LayerTimes:
        def schedules(problem: str) -> tuple[Timed, ...]:
            asked[problem] = weights_bytes
            return (replace(costs.schedules(problem)[0], hash=AHEAD.hash,
                            steps=tuple(AHEAD.to_json())),)  # fmt: skip

        return replace(costs, schedules=schedules)

    monkeypatch.setattr(cold_weights, "timed_cold", timed_cold)
    found = modelled(cli, tmp_path, TWO)
    assert asked == dict.fromkeys((FIRST, SECOND), 4 * (64 * 96 + 96 * 40))
    assert [(op["schedule"], op["replaced"]) for op in found["ops"]] == [(AHEAD.hash, 1)] * 2
    assert found["right"]
    gain, named = Gain(True, 1e-6, 1e-3, 10.0, 9.0, {"default": 20.0}), re.compile(r"tilewise_m\w+")
    monkeypatch.setattr(library, "measured", lambda *_: gain)
    alone = cli("model", str(tmp_path / "model.mlir"), "--as", "iree").out
    whole = (tmp_path / "made" / "lib.mlir").read_text()
    assert {*named.findall(alone)} == {*named.findall(whole)}


@pytest.mark.full
def test_a_function_of_torch_tensors_runs_strictly(cli: Cli, untimed, tmp_path: Path) -> None:
    x, w, y = (f"!torch.vtensor<[{shape}],f32>" for shape in ("8,64", "64,96", "8,96"))
    text = (
        f"func.func @net(%x: {x}, %w: {w}) -> {y} {{\n"
        f"  %0 = torch.aten.mm %x, %w : {x}, {w} -> {y}\n  return %0 : {y}\n}}\n"
    )
    found = modelled(cli, tmp_path, text, "--accuracy", "strict")
    strict = "matmul:m=8,n=96,k=64,dtype=f32,accuracy=strict"
    assert (found["accuracy"], found["ops"][0]["problem"]) == ("strict", strict)
    assert (tmp_path / "made" / "problems.txt").read_text() == f"{strict}  # 1\n"
    assert strict in (tmp_path / "made" / "lib.mlir").read_text()
    assert found["arguments"] == ["tensor<8x64xf32>", "tensor<64x96xf32>"]
    assert found["entry"] == "net" and found["right"] and found["ops"][0]["replaced"] == 1


@pytest.mark.full
@pytest.mark.usefixtures("untimed")
def test_a_function_that_writes_over_its_argument_is_compared_on_equal_ones(cli, tmp_path) -> None:
    """IREE adds to the caller's array; under a name with a hyphen, as ONNX models have."""
    found = modelled(cli, tmp_path, accumulating('"adds-to-c"'))
    assert found["entry"] == "adds-to-c" and found["ops"][0]["replaced"] == 1
    assert max(form["deviation"] for form in found["forms"].values()) <= found["tolerance"]


VIEWS = """
util.func public @views(%x: !hal.buffer_view, %y: !hal.buffer_view) -> !hal.buffer_view {
  %zero = arith.constant 0.0 : f32
  %a = hal.tensor.import %x : !hal.buffer_view -> tensor<8x64xf32>
  %b = hal.tensor.import %y : !hal.buffer_view -> tensor<64x96xf32>
  %e = tensor.empty() : tensor<8x96xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<8x96xf32>) -> tensor<8x96xf32>
  %r = linalg.matmul ins(%a, %b : tensor<8x64xf32>, tensor<64x96xf32>)
      outs(%z : tensor<8x96xf32>) -> tensor<8x96xf32>
  %v = hal.tensor.export %r : tensor<8x96xf32> -> !hal.buffer_view
  util.return %v : !hal.buffer_view
}
"""
OUT = "%v = hal.tensor.export "
BARRIER = "%f = hal.tensor.barrier join(%r : tensor<8x96xf32>) => %s : !hal.fence\n  "
FENCED = (
    VIEWS.replace("@views(", "@views$async(%w: !hal.fence, %s: !hal.fence, ")
    .replace("import ", "import wait(%w) => ")
    .replace(f"{OUT}%r", f"{BARRIER}{OUT}%f")
)
BENCHMARK = """
util.func public @benchmark(%n: i32) attributes {
    iree.abi.stub, iree.reflection = {iree.benchmark = "dispatch"}} {
  util.return
}
""" + accumulating("dispatch").replace("@", "private @")


@pytest.mark.full
def test_a_function_of_views_runs_as_one_of_tensors(cli: Cli, untimed, tmp_path: Path) -> None:
    found = modelled(cli, tmp_path, VIEWS)
    assert found["arguments"] == ["tensor<8x64xf32>", "tensor<64x96xf32>"]
    assert found["results"] == ["tensor<8x96xf32>"] and found["right"]
    assert found["ops"][0]["replaced"] == 1


@pytest.mark.parametrize(("text", "options", "said"), some([
    (accumulating("one"), ("--entry", "nope"), "no function nope; it has one"),
    (accumulating("one", ", %n: i32"), ("--entry", "one"), "takes or returns i32"),
    (accumulating("one", ", %n: tensor<?xf32>"), (), "takes or returns tensor<?xf32>"),
    (FENCED, (), "takes or returns !hal.fence"),
    (BENCHMARK, (), "takes or returns i32"),
], of=3), ids=["entry", "number", "dynamic", "fenced", "benchmark"])  # fmt: skip
def test_what_cannot_run_is_refused_before_anything_is_tuned(text, options, said, cli, tmp_path):
    path = written(tmp_path / "one.mlir", text)
    assert cli("import", path, "--json").json["problems"]
    assert said in cli("model", path, "-o", str(tmp_path / "made"), *options).error()
    assert not (tmp_path / "made").exists()


def test_what_is_no_model_is_refused(cli: Cli, tmp_path: Path) -> None:
    nothing = written(tmp_path / "nothing.mlir", "func.func @main() { return }")
    garbage = written(tmp_path / "garbage.mlir", "no module")
    for path in (nothing, garbage, str(tmp_path / "absent.mlir")):
        cli("model", path, "-o", str(tmp_path / "made")).error()
    dynamic = written(tmp_path / "x.mlir", accumulating("main").replace("<8x", "<?x"))
    said = ": linalg.matmul at @main 2:8 has dynamic shapes; give --dim"
    assert said in cli("plan", dynamic).error()


@pytest.mark.parametrize(("target", "said"), [
    ("iree:host", "a model is compiled with our kernels"),
    ("cpu:host,threads=1024", "target 'cpu:host,threads=1024': this machine has"),
])  # fmt: skip
def test_a_target_that_is_not_for_models_or_not_this_machine(cli, tmp_path, target, said) -> None:
    done = cli("model", written(tmp_path / "two.mlir", TWO), "--target", target)
    assert done.code == 2 and done.err.count(said) == 1, done.err
