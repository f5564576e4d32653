import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from examples.models.graph import Graph, Value
from examples.models.spellings import spelled
from tests.kernels.dispatches.extraction.test_combined import reshaped_result
from tests.tilewise.conftest import Cli
from tilewise.errors import TilewiseError
from tilewise.kernels.schedule import Pack, Prefetch, Register, Schedule
from tilewise.kernels.target.model import Target
from tilewise.model import examine
from tilewise.model.child import entry_of
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


@pytest.fixture
def source(tmp_path: Path) -> Path:
    graph = Graph("two", Value("given", (8, 64)))
    graph.linear(graph.linear(graph.given, 96, relu=True), 40)
    path = tmp_path / "two.mlir"
    path.write_text(spelled(graph))
    return path


def modelled(cli: Cli, path: Path, *options: str) -> Any:
    made = ("-o", str(path.parent / "made"), "--trials", "1", "--no-ops", "--json")
    done = cli("model", str(path), *made, *options)
    assert done.code == 0, done.err
    return json.loads(done.out)


@pytest.mark.full
def test_a_model_is_tuned_compiled_and_compared(cli: Cli, source: Path, tmp_path: Path) -> None:
    found = modelled(cli, source)
    assert [(op["problem"], op["count"], op["replaced"]) for op in found["ops"]] == [
        (FIRST, 1, 1),
        (SECOND, 1, 1),
    ]
    assert found["arguments"] == ["tensor<8x64xf32>"] and found["entry"] == "main"
    assert found["accuracy"] == "standard"
    assert found["right"] and all(form["time_ms"] > 0 for form in found["forms"].values())
    assert found["forms"]["default"]["right"] and found["forms"]["default"]["overwrites"] == []
    assert found["forms"]["library"]["deviation"] <= found["tolerance"] < 1e-4
    assert {path.name for path in (tmp_path / "made").iterdir()} == FILES


@pytest.mark.full
def test_an_op_that_loses_a_part_is_tuned_and_called_without_it(cli: Cli, tmp_path: Path) -> None:
    """Its result lies in another order, and relu follows a reshape."""
    source = tmp_path / "reshaped.mlir"
    source.write_text(reshaped_result())
    found = modelled(cli, source)
    (op,) = found["ops"]
    assert (op["problem"], op["replaced"]) == ("matmul:batch=5,m=3,n=16,k=8,dtype=f32", 1)
    assert (tmp_path / "made" / "problems.txt").read_text().startswith(f"{op['problem']} ")


@pytest.mark.full
def test_kernels_are_those_that_are_fastest_with_weights_of_other_layers_between(
    cli: Cli, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, int] = {}

    def retimed(costs: LayerTimes, _target: Target, weights_bytes: int) -> LayerTimes:
        def schedules(problem: str) -> tuple[Timed, ...]:
            asked[problem] = weights_bytes
            return (replace(costs.schedules(problem)[0], hash=AHEAD.hash,
                            steps=tuple(AHEAD.to_json())),)  # fmt: skip

        return replace(costs, schedules=schedules)

    monkeypatch.setattr(examine, "retimed", retimed)
    found = modelled(cli, source)
    assert asked == dict.fromkeys((FIRST, SECOND), 4 * (64 * 96 + 96 * 40))
    assert [(op["schedule"], op["replaced"]) for op in found["ops"]] == [(AHEAD.hash, 1)] * 2
    assert found["right"]


@pytest.mark.full
def test_a_function_of_torch_tensors_runs_strictly(cli: Cli, tmp_path: Path) -> None:
    x, w, y = (f"!torch.vtensor<[{shape}],f32>" for shape in ("8,64", "64,96", "8,96"))
    path = tmp_path / "torch.mlir"
    path.write_text(
        f"func.func @net(%x: {x}, %w: {w}) -> {y} {{\n"
        f"  %0 = torch.aten.mm %x, %w : {x}, {w} -> {y}\n  return %0 : {y}\n}}\n"
    )
    found = modelled(cli, path, "--accuracy", "strict")
    assert found["accuracy"] == "strict"
    strict = "matmul:m=8,n=96,k=64,dtype=f32,accuracy=strict"
    assert found["ops"][0]["problem"] == strict
    assert (tmp_path / "made" / "problems.txt").read_text() == f"{strict}  # 1\n"
    assert strict in (tmp_path / "made" / "lib.mlir").read_text()
    assert found["arguments"] == ["tensor<8x64xf32>", "tensor<64x96xf32>"]
    assert found["entry"] == "net" and found["right"] and found["ops"][0]["replaced"] == 1


@pytest.mark.full
def test_a_function_that_writes_over_its_argument_is_compared_on_equal_ones(
    cli: Cli, tmp_path: Path
) -> None:
    """IREE adds to the caller's array; under a name with a hyphen, as ONNX models have."""
    path, c = tmp_path / "adds.mlir", "tensor<8x96xf32>"
    path.write_text(
        f'func.func @"adds-to-c"(%a: tensor<8x64xf32>, %b: tensor<64x96xf32>, %c: {c}) -> {c} {{\n'
        f"  %r = linalg.matmul ins(%a, %b : tensor<8x64xf32>, tensor<64x96xf32>) outs(%c : {c}) "
        f"-> {c}\n  return %r : {c}\n}}\n"
    )
    found = modelled(cli, path)
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
func.func private @dispatch(%a: tensor<8x64xf32>, %b: tensor<64x96xf32>, %c: tensor<8x96xf32>)
    -> tensor<8x96xf32> {
  %r = linalg.matmul ins(%a, %b : tensor<8x64xf32>, tensor<64x96xf32>)
      outs(%c : tensor<8x96xf32>) -> tensor<8x96xf32>
  return %r : tensor<8x96xf32>
}
"""


@pytest.mark.full
def test_a_function_of_views_runs_as_one_of_tensors(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "views.mlir"
    path.write_text(VIEWS)
    found = modelled(cli, path)
    assert found["arguments"] == ["tensor<8x64xf32>", "tensor<64x96xf32>"]
    assert found["results"] == ["tensor<8x96xf32>"] and found["right"]
    assert found["ops"][0]["replaced"] == 1


@pytest.mark.parametrize(("text", "said"), [(FENCED, "!hal.fence"), (BENCHMARK, "i32")])
def test_types_of_arguments_are_the_reason_before_anything_is_tuned(
    text: str, said: str, cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "one.mlir"
    path.write_text(text)
    assert json.loads(cli("import", str(path), "--json").out)["problems"]
    done = cli("model", str(path), "-o", str(tmp_path / "made"))
    assert done.code == 2 and f"takes or returns {said}" in done.err, done.err
    assert "tunes" not in done.err and not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("entry", "more", "said"),
    [
        ("nope", "", "no function nope; it has one"),
        ("one", ", %n: i32", "takes or returns i32"),
        ("one", ", %n: tensor<?xf32>", "takes or returns tensor<?xf32>"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_is_tuned(
    entry: str, more: str, said: str, cli: Cli, tmp_path: Path
) -> None:
    path, c = tmp_path / "one.mlir", "tensor<8x96xf32>"
    path.write_text(
        f"func.func @one(%a: tensor<8x64xf32>, %b: tensor<64x96xf32>, %c: {c}{more}) -> {c} {{\n"
        f"  %r = linalg.matmul ins(%a, %b : tensor<8x64xf32>, tensor<64x96xf32>) outs(%c : {c}) "
        f"-> {c}\n  return %r : {c}\n}}\n"
    )
    done = cli("model", str(path), "-o", str(tmp_path / "made"), "--entry", entry)
    assert done.code == 2 and said in done.err, done.err
    assert not (tmp_path / "made").exists()


def test_what_is_no_model_is_refused(cli: Cli, tmp_path: Path) -> None:
    nothing, garbage = tmp_path / "nothing.mlir", tmp_path / "garbage.mlir"
    nothing.write_text("func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> "
                       "{ return %a : tensor<4xf32> }")  # fmt: skip
    garbage.write_text("no module")
    for path in (nothing, garbage, tmp_path / "absent.mlir"):
        done = cli("model", str(path), "-o", str(tmp_path / "made"))
        assert done.code == 2 and len(done.err.strip().splitlines()) == 1, done.err


def test_why_a_model_has_no_problem_is_said(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "dynamic.mlir"
    path.write_text(
        "func.func @main(%a: tensor<?x6xf32>, %b: tensor<6x4xf32>, %c: tensor<?x4xf32>)\n"
        "    -> tensor<?x4xf32> {\n"
        "  %r = linalg.matmul ins(%a, %b : tensor<?x6xf32>, tensor<6x4xf32>)"
        " outs(%c : tensor<?x4xf32>) -> tensor<?x4xf32>\n  return %r : tensor<?x4xf32>\n}\n"
    )
    for command in ("model", "plan"):
        done = cli(command, str(path))
        assert done.code == 2, done.err
        assert ": linalg.matmul at @main 3:8 has dynamic shapes; give --dim" in done.err


def test_a_model_is_not_for_a_target_of_irees_code(cli: Cli, source: Path) -> None:
    done = cli("model", str(source), "--target", "iree:host")
    assert done.code == 2 and "a model is compiled with our kernels" in done.err, done.err


def test_a_target_that_this_machine_is_not_is_refused_once(cli: Cli, source: Path) -> None:
    done = cli("model", str(source), "--target", "cpu:host,threads=1024")
    assert done.code == 2
    assert done.err.count("target 'cpu:host,threads=1024': this machine has") == 1


def test_a_module_without_a_public_function_says_so() -> None:
    with pytest.raises(TilewiseError, match="no public function"):
        entry_of([], None)
