"""A plan takes the layouts that cost the least, pays each copy once, and says what it leaves."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from examples.models import MODELS
from examples.models.graph import Graph as ModelGraph
from examples.models.graph import Value
from examples.models.spellings import spelled
from tests.kernels.mlir.frontend.test_graph import AROUND
from tests.search.networks.lowering.drawn import plan_of, program_of
from tilewise.kernels.mlir.frontend.graph import Graph
from tilewise.kernels.mlir.frontend.program import ModuleProgram
from tilewise.kernels.mlir.frontend.read import read_graph
from tilewise.kernels.problem import parse_problem
from tilewise.model.libraries import chosen
from tilewise.search.errors import NetworkError
from tilewise.search.networks import planning
from tilewise.search.networks.costs import Timed
from tilewise.search.networks.lowering.network import LoweredNetwork
from tilewise.search.networks.plan import Plan, PlannedNode
from tilewise.search.networks.planning import UNKNOWN, planned
from tilewise.search.networks.request import PlanRequest
from tilewise.search.networks.variants import TensorLayout, problems_of

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")


NAMED = PlanRequest(name="model.mlir", target="cpu:znver4,threads=1")
FIRST, LAST = "nchw_fchw", "nhwc_hwcf"


class Costs:
    """Times by a rule on a problem's keys.

    Args:
        time: of a problem, by its keys; None for one that is not stored.
        copy_us: of any conversion.
    """

    def __init__(self, time: Callable[[dict], float | None], copy_us: float) -> None:
        self.time, self.copy_us = time, copy_us
        self.asked: set[str] = set()

    def schedules(self, problem: str) -> tuple[Timed, ...]:
        self.asked.add(problem)
        time_us = self.time({"layout": LAST, "pad": 0, **parse_problem(problem).to_json()})
        if time_us is None:
            return ()
        return (Timed("direct", "d", ({"step": "register"},), time_us),
                Timed("winograd F4", "w", (), time_us + 1))  # fmt: skip

    def conversion_us(self, shape, dtype: str, made: TensorLayout, to: TensorLayout) -> float:
        assert made != to
        assert dtype == "f32"
        return self.copy_us


@pytest.fixture(scope="module")
def network() -> Graph:
    """Channels first, as torch writes it."""
    return read_graph(spelled(MODELS["resnet50"](True), "torch").encode())


def convolutions(plan: Plan) -> list[str]:
    return [node.problem for node in plan.nodes if node.problem and "conv2d" in node.problem]


def test_all_layouts_are_offered_once(network: Graph) -> None:
    own, every = problems_of(network, "model"), problems_of(network)
    assert len(own) == 10 and own == tuple(found.problem for found in network.layers)
    padded = [problem for problem in own if "pad=" in problem]
    assert len(every) == 1 + 2 * 9 + 2 * len(padded)  # a matmul, two orders, and halos
    assert f"{padded[1].replace('h=8,w=8', 'h=10,w=10').replace('pad=1,', '')}" in every
    assert all(str(parse_problem(problem)) == problem for problem in every)


def plan_of_orders(network: Graph, copy_us: float = 1.0, first_us: float = 100) -> Plan:
    """The plan where layers take 50 in the other order, and so much in the model's."""
    costs = Costs(lambda keys: first_us if keys["layout"] == FIRST else 50, copy_us)
    return planned(network, costs, NAMED)


def test_cheap_copies_move_a_network_to_the_other_order(network: Graph) -> None:
    plan = plan_of_orders(network)
    assert plan.is_exact and all("nchw" not in problem for problem in convolutions(plan))
    where = {one.tensor: one.layout.name for one in plan.conversions}
    assert len(where) == len(plan.conversions)
    # The image, before the pool, behind the pool, before the mean.
    assert where == {0: "axes 2,3,1", 1: "plain", 3: "axes 2,3,1", 11: "plain"}
    assert [plan.tensors[i].layout.name for i in (1, 3, 6, 11, 14)] == [
        "axes 2,3,1", "plain", "axes 2,3,1", "axes 2,3,1", "plain"]  # fmt: skip
    assert plan.totals.plain_us == 9 * 100 + 50  # of the matmul
    assert plan.totals.chosen_us == plan.totals.alone_us == 9 * 50 + 4 + 50


def test_dear_copies_leave_it_where_it_is(network: Graph) -> None:
    plan = plan_of_orders(network, copy_us=5.0, first_us=51)
    assert not plan.conversions and all("nchw" in problem for problem in convolutions(plan))
    assert plan.totals.chosen_us == plan.totals.plain_us == 9 * 51 + 50
    assert plan.totals.alone_us == 9 * 50 + 50 + 4 * 5


def test_a_gain_that_times_cannot_show_moves_nothing(network: Graph) -> None:
    def plan(gain: float) -> Plan:
        return planned(network, Costs(lambda p: 100 - gain * (p["layout"] == LAST), 0.01), NAMED)

    assert (plan(1.05).conversions, plan(1.05).is_exact) == ((), True)
    assert plan(1.3).conversions


def test_a_halo_is_written_where_it_saves_more_than_its_copy(network: Graph) -> None:
    plan = planned(network, Costs(lambda p: 100 if p["pad"] else 60, 30.0), NAMED)
    halos = [one for one in plan.conversions if one.layout.halo]
    assert [(one.layout.halo, one.layout.around) for one in halos] == [
        (3, (2, 3)), (1, (2, 3)), (1, (2, 3))]  # fmt: skip
    readers = [node for node in plan.nodes if any(use.layout.halo for use in node.reads)]
    assert ["pad" in node.problem for node in readers if node.problem] == [False] * 3
    assert [node.found.problem != node.problem for node in readers if node.found] == [True] * 3
    assert planned(network, Costs(lambda p: 100 if p["pad"] else 60, 41.0), NAMED).conversions == ()


def test_a_copy_is_paid_once_for_all_who_read_it(network: Graph) -> None:
    def time(keys: dict) -> float:
        return 100 if keys["layout"] == FIRST or keys.get("kw") == 7 else 90

    plan = planned(network, Costs(time, 1.0), NAMED)
    assert len({(one.tensor, one.layout) for one in plan.conversions}) == len(plan.conversions)
    pooled = next(node for node in plan.nodes if node.kind == "pool").makes[0].tensor
    readers = [n for n in plan.nodes if any(use.tensor == pooled for use in n.reads)]
    assert (len(readers), [one.tensor for one in plan.conversions].count(pooled)) == (2, 1)


def test_what_nobody_tuned_is_planned_around(network: Graph) -> None:
    def time(keys: dict) -> float | None:
        return None if keys.get("kw") == 7 else 10.0

    plan = planned(network, Costs(time, 1.0), NAMED)
    first = plan.nodes[0]
    assert (first.problem, first.schedule, first.reason) == (None, None, UNKNOWN)
    assert all(use.layout.is_plain for use in (*first.reads, *first.makes))
    assert plan.totals.chosen_us == 9 * 10


def test_what_cannot_be_a_problem_is_planned_around() -> None:
    plan = planned(read_graph(AROUND.encode()), Costs(lambda _: 10, 1.0), NAMED)
    first, _, refused = plan.nodes
    assert first.schedule is not None and "dynamic shapes" in refused.reason
    assert plan.tensors[refused.makes[0].tensor].shape == (None, 8)
    assert plan.totals.chosen_us == 10


def test_elementwise_ops_follow_an_order() -> None:
    lines = ["func.func @main(%x: tensor<1x8x9x9xf32>) -> tensor<1x8x9x9xf32> {",
             "%w = arith.constant dense_resource<__elided__> : tensor<8x8x1x1xf32>",
             "%f = arith.constant dense<0.0> : tensor<1x8x9x9xf32>"]  # fmt: skip
    for i, source in enumerate(("%x", "%t0")):
        lines += [f"%c{i} = linalg.conv_2d_nchw_fchw ins({source}, %w : tensor<1x8x9x9xf32>, "
                  "tensor<8x8x1x1xf32>) outs(%f : tensor<1x8x9x9xf32>) -> tensor<1x8x9x9xf32>",
                  f"%t{i} = math.tanh %c{i} : tensor<1x8x9x9xf32>"]  # fmt: skip
    graph = read_graph("\n".join([*lines, "return %t1 : tensor<1x8x9x9xf32>", "}"]).encode())
    plan = plan_of_orders(graph)
    assert len(plan.conversions) == 2  # of the argument, and before or behind the last op
    tanh = [node for node in plan.nodes if node.op == "math.tanh"]
    assert tanh[0].reads[0].layout.name == tanh[0].makes[0].layout.name == "axes 2,3,1"


def test_a_plan_is_what_its_json_says(network: Graph) -> None:
    plan = plan_of_orders(network)
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    with pytest.raises(ValueError, match=r"schema='tilewise/plan/0' is not tilewise/plan/1"):
        Plan.from_json(plan.to_json() | {"schema": "tilewise/plan/0"})
    with pytest.raises(ValueError, match="schema=None"):
        Plan.from_json([])


def test_a_choice_that_is_too_wide_is_not_exact(network, monkeypatch) -> None:
    choose = planning.choose
    monkeypatch.setattr(planning, "choose", lambda flow: choose(flow, most_states=1))
    plan = plan_of_orders(network)
    assert not plan.is_exact and plan.totals.chosen_us <= plan.totals.plain_us


@pytest.fixture(scope="module")
def program() -> ModuleProgram:
    """One convolution."""
    graph = ModelGraph("earlier", Value("given", (1, 9, 7, 32)))
    graph.conv(graph.given, 64, 1)
    return program_of(graph, "torch")


def test_plans_from_before_blocks_are_read_and_those_with_blocks_are_not_run(
    program: ModuleProgram,
) -> None:
    def without(part: dict) -> dict:
        return {name: one for name, one in part.items() if name != "block"}

    def cut(node: PlannedNode) -> PlannedNode:
        if node.found is None:
            return node
        makes = [replace(use, layout=replace(use.layout, block=32)) for use in node.makes]
        return replace(node, makes=tuple(makes))

    plan = plan_of(program, 0)
    text = json.dumps(plan.to_json())
    assert "block" in text and Plan.from_json(json.loads(text, object_hook=without)) == plan
    earlier = replace(plan, nodes=tuple(map(cut, plan.nodes)))
    assert Plan.from_json(json.loads(json.dumps(earlier.to_json()))) == earlier
    names = [use.layout.name for node in earlier.nodes for use in node.makes]
    assert any("blocks of 32" in name for name in names)
    with pytest.raises(NetworkError, match=r"channels are in blocks.*make the plan again"):
        LoweredNetwork(earlier, program)
    _, notes = chosen(earlier)
    assert len([note for note in notes if "has channels in blocks" in note]) == 1
