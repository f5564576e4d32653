"""Passes are timed as the runner makes them, and the choice knows what they cost."""

import json
from dataclasses import replace
from random import Random

import pytest

from examples.models import MODELS
from examples.models.spellings import spelled
from tests.cases import some
from tests.search.networks.lowering.drawn import Drawn, apart, computed, loaded, plan_of, program_of
from tilewise.kernels.mlir.frontend.program import ModuleProgram
from tilewise.kernels.mlir.frontend.read import read_outline
from tilewise.kernels.target import detect
from tilewise.search.networks import copy_times
from tilewise.search.networks.lowering.network import LoweredNetwork
from tilewise.search.networks.pass_times import PassTimes
from tilewise.search.networks.plan import Plan, PlannedPass
from tilewise.search.networks.planning import Named, planned

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

Times = dict[tuple[str, bool], float]
"""Of passes, by the op that ends one and whether it reads its tensors as the model has them."""


class MadeUp:
    """Passes as they are, with times by a rule (`tilewise.search.networks.planning.Passes`).

    Args:
        program: of the model.
        times: of passes; others take 1.
    """

    def __init__(self, program: ModuleProgram, times: Times) -> None:
        self._own = PassTimes(program.outline, detect())
        self._times = times
        self.outline = program.outline

    def of(self, plan: Plan) -> tuple[PlannedPass, ...]:
        return tuple(replace(one, time_us=self._time(plan, one)) for one in self._own.of(plan))

    def _time(self, plan: Plan, one: PlannedPass) -> float:
        node = plan.nodes[one.nodes[-1]]
        return self._times.get((node.kind, node.reads[0].layout.is_plain), 1.0)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_times, "BUDGET_S", 1e-4)


@pytest.fixture(scope="module")
def resnet() -> ModuleProgram:
    """Channels first."""
    return program_of(MODELS["resnet50"](True), "torch")


@pytest.mark.parametrize(("name", "spelling"), [("resnet50", "torch"), ("bert", "linalg")])
def test_passes_are_those_of_the_runner(name: str, spelling: str) -> None:
    graph = MODELS[name](True)
    program = program_of(graph, spelling)
    outline = read_outline(spelled(graph, spelling).encode())
    assert outline is not None
    assert replace(outline, constants=()) == replace(program.outline, constants=())
    plan = plan_of(program, 1)
    times = PassTimes(outline, detect())
    found = times.of(plan)
    made = {one.label: one.node for one in LoweredNetwork(plan, program).parts}
    layers = {node.problem for node in plan.nodes}
    assert {one.label for one in found} == {
        label for label in made if label not in layers and not label.startswith("copy of")
    }
    assert found == times.of(plan), "each is timed once"
    assert all(0 < one.time_us < 1e6 for one in found)
    done = [number for one in found for number in one.nodes]
    assert sorted(done) == [i for i, node in enumerate(plan.nodes) if node.found is None]


def test_a_pool_follows_the_order_in_which_it_is_faster(resnet: ModuleProgram) -> None:
    def plan(times: Times) -> Plan:
        costs = Drawn(detect(), Random(2), copy_us=0.5)
        named = Named("drawn", detect().canonical, "hot")
        return planned(resnet.outline.graph, costs, named, passes=MadeUp(resnet, times))

    slow, fast = plan({("pool", False): 99.0}), plan({("pool", True): 99.0})
    for made, is_plain in ((slow, True), (fast, False)):
        pool = next(node for node in made.nodes if node.kind == "pool")
        assert pool.reason == "", "what is timed is not planned around"
        assert pool.reads[0].layout.is_plain is pool.makes[0].layout.is_plain is is_plain
        parts = [node.schedule.time_us for node in made.nodes if node.schedule]
        parts += [one.time_us for one in (*made.conversions, *made.passes)]
        assert made.totals.chosen_us == pytest.approx(sum(parts))
        assert made.totals.chosen_us <= made.totals.plain_us
        assert made.totals.chosen_us <= made.totals.alone_us * (1 + 1e-9)
    assert fast.totals.plain_us > slow.totals.plain_us + 90


@pytest.mark.parametrize("seed", some(range(4), of=4))
def test_a_network_with_its_passes_in_another_order_runs_right(
    seed: int, resnet: ModuleProgram
) -> None:
    graph = MODELS["resnet50"](True)
    times = {("pool", True): 99.0, ("other", True): 99.0 * (seed % 2), ("elementwise", True): 9.0}
    plan = plan_of(resnet, seed, passes=MadeUp(resnet, times))
    moved = {node.kind for node in plan.nodes
             if node.found is None and not node.reads[0].layout.is_plain}  # fmt: skip
    assert "pool" in moved
    assert ("other" in moved) or not seed % 2
    argument = graph.argument(seed)
    expected = computed(loaded(plan_of(resnet, seed), resnet), graph, "torch", argument)
    assert apart(computed(loaded(plan, resnet), graph, "torch", argument), expected) < 1e-5


def test_an_older_plan_has_no_passes(resnet: ModuleProgram) -> None:
    told = json.loads(json.dumps(plan_of(resnet, 1).to_json()))
    del told["passes"]
    assert Plan.from_json(told).passes == ()


def test_what_does_not_run_here_is_not_timed() -> None:
    source = """
    func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
      %w = arith.constant dense<1.0> : tensor<8x8xf32>
      %e = tensor.empty() : tensor<4x8xf32>
      %zero = arith.constant 0.0 : f32
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
      %l = math.log %x : tensor<4x8xf32>
      %m = linalg.matmul ins(%l, %w : tensor<4x8xf32>, tensor<8x8xf32>)
        outs(%f : tensor<4x8xf32>) -> tensor<4x8xf32>
      %t = math.tanh %m : tensor<4x8xf32>
      return %t : tensor<4x8xf32>
    }"""
    outline = read_outline(source.encode())
    assert outline is not None
    costs, named = Drawn(detect(), Random(1), 1.0), Named("drawn", detect().canonical, "hot")
    plan = planned(outline.graph, costs, named, passes=PassTimes(outline, detect()))
    assert [plan.nodes[number].op for one in plan.passes for number in one.nodes] == ["math.tanh"]
    two = source + source.replace("@main", "@other")
    assert read_outline(f"module {{ {two} }}".encode()) is None
