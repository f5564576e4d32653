"""`tilewise plan`, and `tilewise model --as native`."""

import json
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from examples.models.graph import Graph, Value
from examples.models.spellings import spelled
from tests.cases import some
from tests.kernels.mlir.frontend.test_graph import AROUND
from tests.kernels.mlir.frontend.test_onnx import model
from tests.search.networks.lowering.drawn import plan_of
from tests.service import fakes
from tests.tilewise.conftest import Cli, search_by, written
from tilewise import Client
from tilewise.client.events import BrokenStreamError
from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.mlir.frontend import read
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Pack, Register, Schedule, Tile, Winograd, check_legal
from tilewise.kernels.system.limited_child import Ended
from tilewise.kernels.system.typed_json import from_json
from tilewise.model.network import Ran, allowed, ran, run_text, runnable
from tilewise.search.networks import pass_times
from tilewise.search.networks.plan import SCHEMA, Plan
from tilewise.search.records import TuneResult

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

CONV = "conv2d:n=1,h=9,w=9,ci=8,co=16,kh=3,kw=3,pad=1,dtype=f32,bias,epilogue=relu,weights=constant"
LAST = "matmul:m=1,n=24,k=16,dtype=f32,bias,weights=constant"

SQUARE = "tensor<16x16xf32>"
OF_A_LOGARITHM = f"""
func.func @main(%x: {SQUARE}, %w: {SQUARE}, %c: {SQUARE}) -> {SQUARE} {{
  %y = linalg.matmul ins(%x, %w : {SQUARE}, {SQUARE}) outs(%c : {SQUARE}) -> {SQUARE}
  %z = math.log %y : {SQUARE}
  return %z : {SQUARE}
}}
"""


@pytest.fixture(autouse=True)
def quick_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pass_times, "BUDGET_S", 0.001)


def saved(graph: Graph, folder: Path) -> Path:
    return Path(written(folder / f"{graph.name}.mlir", spelled(graph)))


@pytest.fixture
def source(tmp_path: Path) -> str:
    graph = Graph("net", Value("given", (1, 9, 9, 8)))
    graph.linear(graph.mean_pool(graph.conv(graph.given, 16, 3)), 24)
    return str(saved(graph, tmp_path))


def test_a_model_is_tuned_and_planned(cli: Cli, tuned: str, source: str, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    done = cli("plan", source, "--trials", "2", "--json", "-o", str(folder))
    assert done.code == 0, done.err
    assert (folder / "plan.json").read_text() == done.out
    now = f"tilewise model {source} --as native --trials 2 --json > {folder}/plan.json"
    assert done.err.splitlines()[-1].endswith(now)
    plan = Plan.from_json(json.loads(done.out))
    assert plan.schema == SCHEMA
    assert plan.is_exact
    assert [node.found.problem for node in plan.nodes if node.found] == [CONV, LAST]
    assert all(node.schedule for node in plan.nodes if node.found)
    assert plan.totals.chosen_us <= plan.totals.plain_us
    assert plan.totals.chosen_us <= plan.totals.alone_us
    tuned_problems = [line.split(" tunes ")[1] for line in done.err.splitlines() if "tunes" in line]
    assert len(tuned_problems) == 5  # the product, and the convolution in two orders with halos

    again = cli("model", source, "--as", "native", "--layouts", "model")
    assert again.err == ""  # all of it is stored
    rows = again.out.splitlines()
    assert rows[0].split() == ["node", "problem", "algorithm", "reads", "makes", "time", "share"]
    assert rows[1].split()[:3] == ["0", CONV, "direct"]
    assert rows[1].split()[3:5] == ["plain", "plain"]
    assert "all as the model has it" in again.out
    assert [row.split()[0] for row in rows if " pass " in row] == ["1", "2"], "sum and quotient"
    assert "not timed" not in again.out


@pytest.mark.full
def test_a_strict_plan_has_direct_methods_alone(cli, tuned, source, monkeypatch) -> None:
    """Compare with a plan of the same model whose fastest algorithm is Winograd."""
    search_by(monkeypatch, winograd)
    given = ("--trials", "2", "--times", "stored", "--layouts", "model", "--json")
    plans = [
        Plan.from_json(cli("model", source, "--as", "native", *given, *asked).json)
        for asked in ((), ("--accuracy", "strict"), ("--accuracy", "standard"))
    ]
    algorithms = [[node.schedule.algorithm for node in plan.nodes if node.schedule]
                  for plan in plans]  # fmt: skip
    fast, strict = ["winograd F2", "direct"], ["direct", "direct"]
    assert algorithms == [fast, strict, fast]
    assert [plan.accuracy for plan in plans] == ["standard", "strict", "standard"]
    assert [node.problem for node in plans[1].nodes if node.problem] == [
        f"{one},accuracy=strict" for one in (CONV, LAST)
    ]
    text = cli("model", source, "--as", "native", *given[:-1], "--accuracy", "strict")
    assert text.err == "" and "with hot caches, accuracy=strict: net.mlir" in text.out


def winograd(problem: Problem, *given: Any, **hooks: Any) -> TuneResult:
    """Find tiles of Winograd transforms, wherever the problem allows them."""

    def schedule(number: int) -> Schedule:
        direct = Schedule((Register(rows=number + 1, cols=16),))
        filtered = Schedule((Winograd(2), Pack("B"), Tile("t", 4), Pack("A"), *direct.steps))
        try:
            check_legal(problem, filtered)
        except ScheduleError:
            return direct
        return filtered

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fakes, "schedule", schedule)
        return fakes.tune(problem, *given, **hooks)


@pytest.mark.full
def test_a_service_tunes_for_a_plan_or_makes_it(cli, served, source, monkeypatch) -> None:
    given = ("plan", source, "--trials", "2", "--layouts", "model", "--json", "--server", served)
    plan = Plan.from_json(cli(*given, "--times", "stored").json)
    assert [node.problem for node in plan.nodes if node.schedule] == [CONV, LAST]
    broken = BrokenStreamError("streams do not pass the proxy")
    monkeypatch.setattr(Client, "plan_events", Mock(side_effect=broken))
    assert cli(*given).json["totals"]["chosen_us"] > 0
    with Client(served) as client:
        assert [one.name for one in client.plans()] == ["net.mlir"]


@pytest.mark.full
def test_a_planned_network_runs_beside_iree(cli, tuned, tmp_path, monkeypatch) -> None:
    pytest.importorskip("iree.runtime", reason="iree-base-runtime is not installed")
    graph, folder = Graph("pooled", Value("given", (1, 9, 9, 16))), tmp_path / "alone"
    graph.linear(graph.mean_pool(graph.max_pool(graph.conv(graph.given, 32, 1))), 16)
    given = ("--trials", "2", "--layouts", "model", "--run", "-o", str(folder), "--json")
    monkeypatch.setattr(read, "ask_of_file", child := Mock(side_effect=read.ask_of_file))
    both = cli("model", str(saved(graph, tmp_path)), "--as", "native", *given).json
    assert child.call_count == 1
    assert both["module"]["folder"] == str(folder)
    assert sorted(both["module"]["files"]) == sorted(path.name for path in folder.iterdir())
    assert both["module"]["times"]
    assert both["module"]["deviation"] <= both["module"]["allowed"]
    assert Plan.from_json(both["plan"]).schema == SCHEMA
    allowed = both["run"].pop("allowed")
    run = from_json(Ran, both["run"])
    assert [part.node for part in run.parts] == [0, 2, 3, 4, 5]  # the pool does the pad
    assert 0 < run.deviation <= allowed < 1e-4
    assert 0 < run.arena_bytes < run.buffers_bytes
    told = run_text(run, allowed).splitlines()
    assert told[2].split()[:2] == ["2", "linalg.pooling_nhwc_max"]
    assert "from the model's results" in told[-1]


@pytest.mark.parametrize("way", some(["--run", "--module"], of=2))
def test_a_network_with_an_op_that_nobody_runs_is_refused_before_anything_is_tuned(
    cli: Cli, tuned: str, tmp_path: Path, way: str
) -> None:
    pytest.importorskip("iree.runtime", reason="iree-base-runtime is not installed")
    path, folder = written(tmp_path / "net.mlir", OF_A_LOGARITHM), tmp_path / "made"
    only = cli("plan", path, "--trials", "2", way, *[str(folder)] * (way == "--module")).error()
    assert only.startswith("tilewise: net.mlir: math.log at @main")
    assert only.endswith("`tilewise model` runs the whole model\n")
    assert not folder.exists()


def quantized(onnx: Any) -> Any:
    """A product of tensors that are quantized and back, as converters write it."""
    node, weights = onnx.helper.make_node, dict[str, Any]()
    for name in ("x", "w", "y"):
        weights |= {f"{name}s": np.float32(0.1), f"{name}z": np.int8(0)}
    weights["v"] = np.random.default_rng(1).integers(-9, 9, (16, 16)).astype(np.int8)
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        node("DequantizeLinear", ["q", "xs", "xz"], ["d"]),
        node("DequantizeLinear", ["v", "ws", "wz"], ["w"]),
        node("MatMul", ["d", "w"], ["p"]),
        node("QuantizeLinear", ["p", "ys", "yz"], ["r"]),
        node("DequantizeLinear", ["r", "ys", "yz"], ["y"]),
    ]
    arrays = {name: np.asarray(value) for name, value in weights.items()}
    return model(onnx, nodes, arrays, [4, 16], [4, 16], 17)


@pytest.mark.full
def test_a_plan_multiplies_the_floats_of_what_import_finds_in_bytes(cli, tuned, tmp_path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    pytest.importorskip("iree.runtime", reason="iree-base-runtime is not installed")
    path = tmp_path / "net.onnx"
    path.write_bytes(quantized(onnx).SerializeToString())
    (found,) = cli("import", str(path), "--json").json["problems"]
    assert found["problem"] == "matmul:m=4,n=16,k=16,dtype=i8,weights=constant"
    cli("plan", str(path), "--trials", "1", "--layouts", "model", "--run").error()
    done = cli("plan", str(path), "--trials", "1", "--layouts", "model", "--json")
    (node,) = (one for one in done.json["nodes"] if one["found"])
    assert node["found"]["problem"] == found["problem"].replace("i8", "f32")
    assert [node["where"]] == [node["found"]["where"]] == found["where"]


def test_a_model_that_takes_too_long_is_read_once(cli, tuned, source, monkeypatch) -> None:
    child = Mock(return_value=Ended(failure="timeout", message="killed at the time limit"))
    monkeypatch.setattr(read, "run_limited", child)
    assert "killed at the time limit" in cli("plan", source).error()
    assert child.call_count == 1


def test_what_cannot_be_tuned_is_planned_around(cli: Cli, tuned: str, tmp_path: Path) -> None:
    path = written(tmp_path / "dynamic.mlir", AROUND)
    done = cli("plan", path, "--trials", "2")
    assert done.code == 0, done.err
    assert "planned around: 2, linalg.matmul at @main" in done.out
    assert "has dynamic shapes; give --dim NAME=SIZE" in done.out


@pytest.mark.full
def test_what_is_no_model_is_refused(cli: Cli, tmp_path: Path, source: str) -> None:
    nothing = written(tmp_path / "none.mlir", "func.func @main() { return }")
    garbage, file = written(tmp_path / "bad.mlir", "no module"), written(tmp_path / "file", "")
    (tmp_path / "package").mkdir()
    written(tmp_path / "package" / "__init__.py", "")
    other = str(tmp_path / "package")
    for arguments in (
        (nothing,), (garbage,), (str(tmp_path / "absent.mlir"),), (str(tmp_path),),
        (source, "-o", file), (source, "--module", file), (source, "--module", other),
        (source, "--trials", "0"), (source, "--target", "gpu"),
    ):  # fmt: skip
        cli("plan", *arguments).error()


@pytest.mark.full
def test_of_two_plans_the_faster_is_kept(tmp_path: Path) -> None:
    pytest.importorskip("iree.runtime", reason="iree-base-runtime is not installed")
    graph = Graph("net", Value("given", (1, 9, 9, 8)))
    graph.linear(graph.mean_pool(graph.conv(graph.conv(graph.given, 16, 3), 16, 3)), 24)
    source = saved(graph, tmp_path)
    model = runnable(source.name, source.read_bytes())
    first, *others = (plan_of(model.program, seed, copy_us=0.1) for seed in range(6))
    other = next(plan for plan in others if plan.nodes != first.nodes)
    run, files = ran([first, other], model)
    assert min(len(run.times), len(run.other_times), len(run.iree_times)) > 5
    assert run.time_ms == 1e3 * median(run.times) <= run.other_ms
    assert 0 < run.deviation <= allowed(first)
    assert Plan.from_json(json.loads(files["plan.json"])) == (first, other)[run.kept]
    kept = (first, other)[run.kept]
    assert {part.node for part in run.parts} >= {
        number for number, node in enumerate(kept.nodes) if node.kind == "contraction"
    }
    told = next(line for line in run_text(run, 1.0).splitlines() if ", slower" in line)
    assert told.startswith("as chosen" if run.kept else "model's layouts")
