import json
from pathlib import Path
from statistics import median

import pytest

from examples.models.graph import Graph, Value
from examples.models.spellings import spelled
from tests.search.networks.lowering.drawn import plan_of
from tilewise.kernels.mlir.frontend.read import read_program
from tilewise.model.network import allowed, ran, run_text
from tilewise.search.networks.plan import Plan

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")
pytest.importorskip("iree.runtime", reason="iree-base-runtime is not installed")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    graph = Graph("net", Value("given", (1, 9, 9, 8)))
    graph.linear(graph.mean_pool(graph.conv(graph.conv(graph.given, 16, 3), 16, 3)), 24)
    path = tmp_path / "net.mlir"
    path.write_text(spelled(graph))
    return path


@pytest.mark.full
def test_of_two_plans_the_faster_is_kept(source: Path) -> None:
    program = read_program(source.read_bytes())
    drawn = [plan_of(program, seed, copy_us=0.1) for seed in range(6)]
    first = drawn[0]
    other = next(plan for plan in drawn if plan.nodes != first.nodes)
    run, files = ran([first, other], source)
    assert run.other_ms is not None
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
