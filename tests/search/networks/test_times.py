"""Layers, copies and passes are timed as the runner makes them."""

import json
from dataclasses import replace
from functools import partial
from random import Random
from unittest.mock import Mock

import pytest

from examples.models import MODELS
from examples.models.graph import Graph, Value
from examples.models.spellings import spelled
from tests.search.networks.lowering.drawn import (
    Drawn,
    apart,
    computed,
    loaded,
    plan_of,
    program_of,
    timed,
)
from tilewise.kernels.mlir.frontend.program import ModuleProgram
from tilewise.kernels.mlir.frontend.read import read_graph, read_outline
from tilewise.kernels.native import lower
from tilewise.kernels.oracle.operands import make_operands, poison
from tilewise.kernels.oracle.reference import compare, reference
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import (
    Pack,
    Parallel,
    Prefetch,
    Register,
    Schedule,
    Skinny,
    Tile,
    Winograd,
)
from tilewise.kernels.target import detect
from tilewise.search.networks import cold_weights, pass_times
from tilewise.search.networks.cold_weights import in_turns, timed_cold, weights_bytes, with_prefetch
from tilewise.search.networks.costs import LayerTimes
from tilewise.search.networks.lowering.network import LoweredNetwork
from tilewise.search.networks.pass_times import PassTimes, conversion_us
from tilewise.search.networks.plan import Plan, PlannedPass
from tilewise.search.networks.planning import planned
from tilewise.search.networks.request import PlanRequest
from tilewise.search.networks.variants import TensorLayout, ordered, plain

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")


CONV = "conv2d:n=1,h=8,w=8,ci=8,co=16,kh=3,kw=3,dtype=f32,bias,weights=constant"
STORED_US = 1e9
THREADS = range(1, 1 + min(2, detect().cores))
IN_PLACE = Schedule((Register(rows=4, cols=16),))
PACKED = Schedule((Pack("B"), Register(rows=6, cols=16)))
FILTERED = Schedule((Winograd(2), Pack("B"), Pack("A"), Register(rows=6, cols=16)))


def untaken(*schedules: Schedule) -> LayerTimes:
    """Return times that nobody took of given schedules."""
    found = tuple(timed(one, STORED_US) for one in schedules)
    return LayerTimes(lambda _problem: found, lambda *_copy: 3.0)


def test_the_fastest_of_each_algorithm_is_offered() -> None:
    costs = timed_cold(untaken(IN_PLACE, PACKED, FILTERED), detect(), 1 << 16)
    found = costs.schedules(CONV)
    assert costs.schedules(CONV) is found
    assert sorted(one.algorithm for one in found) == ["direct", "winograd F2"]
    assert 0 < found[0].time_us <= found[1].time_us < STORED_US
    for one in found:
        assert Schedule.from_json(list(one.steps)).hash == one.hash
        lower(parse_problem(CONV), Schedule.from_json(list(one.steps)), detect())
    layout = TensorLayout((0,))
    assert costs.conversion_us((4,), "f32", layout, layout) == 3.0


def test_panels_are_also_fetched_ahead() -> None:
    ahead = Schedule((Pack("B"), Prefetch("B"), Register(rows=6, cols=16)))
    tried = with_prefetch([timed(PACKED, 1.0), timed(IN_PLACE, 2.0), timed(FILTERED, 3.0)])
    fetching = next(one for one in tried if one[0].hash == ahead.hash)
    assert fetching[1] == PACKED.hash, "it has to compute what the schedule without computes"
    assert len(tried) == 5, "the fastest of each algorithm, where it packs B"
    (packed,) = timed_cold(untaken(PACKED), detect(), 1 << 16).schedules(CONV)
    assert packed.hash in (PACKED.hash, ahead.hash)


def test_what_was_read_in_place_is_also_packed_and_fetched() -> None:
    ahead = Schedule((Tile("co", 16), Pack("B"), Prefetch("B"), Register(rows=4, cols=16)))
    in_place = Schedule((Tile("co", 16), Register(rows=4, cols=16)))
    tried = with_prefetch([timed(in_place, 1.0), timed(PACKED, 2.0)])
    assert [(one.hash, twin) for one, twin in tried] == [
        (in_place.hash, in_place.hash), (PACKED.hash, PACKED.hash), (ahead.hash, in_place.hash),
    ]  # fmt: skip
    (found,) = timed_cold(untaken(in_place), detect(), 1 << 16).schedules(CONV)
    assert found.hash in (in_place.hash, ahead.hash)


@pytest.mark.parametrize(
    "steps", [(Register(4, 16), Skinny("co")), (Pack("B"), Prefetch("B"), Register(4, 16))]
)
def test_nothing_is_added_to_skinny_gemms_and_to_what_fetches(steps) -> None:
    one = timed(Schedule(steps), 1.0)
    assert with_prefetch([one]) == ((one, one.hash),)


def test_what_computes_something_else_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    results = iter([b"right", b"wrong"])
    monkeypatch.setattr(cold_weights, "_result", lambda *_: next(results))
    counted = Mock(wraps=cold_weights.interleave)
    monkeypatch.setattr(cold_weights, "interleave", counted)
    (packed,) = timed_cold(untaken(PACKED), detect(), 1 << 16).schedules(CONV)
    assert packed.hash == PACKED.hash
    assert next(results, None) is None
    assert [len(call.args[0]) for call in counted.call_args_list] == [1]


@pytest.mark.parametrize(("problem", "schedule"), [
    (CONV.replace(",weights=constant", ""), IN_PLACE),  # nobody displaces what is just made
    (CONV, Schedule((Tile("oh", 2), Tile("oh", 3), Register(rows=6, cols=16)))),
])  # fmt: skip
def test_others_keep_their_times(problem: str, schedule: Schedule) -> None:
    costs = untaken(schedule)
    assert timed_cold(costs, detect(), 1 << 16).schedules(problem) == costs.schedules(problem)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("schedule", [IN_PLACE, PACKED])
def test_runs_in_turns_compute_the_problem(schedule: Schedule, threads: int) -> None:
    divided = Schedule((*[Parallel("oh", 2)] * (threads - 1), *schedule.steps))
    problem, operands = parse_problem(CONV), make_operands(parse_problem(CONV))
    expected = reference(problem, operands)
    executable = lower(problem, divided, detect().with_threads(threads))
    run = in_turns(executable, operands, 3)
    for repeat in (1, 2, 5):
        poison(operands["C"])
        run(repeat)
        error, tolerance = compare(problem, operands["C"], expected)
        assert error <= tolerance


def test_bytes_of_all_weights() -> None:
    graph = Graph("net", Value("given", (1, 9, 9, 8)))
    graph.linear(graph.mean_pool(graph.conv(graph.given, 16, 3)), 24)
    assert weights_bytes(read_graph(spelled(graph).encode())) == 4 * (3 * 3 * 8 * 16 + 16 * 24)


SHAPE = (1, 24, 24, 32)


@pytest.mark.parametrize("threads", THREADS)
def test_copies_are_timed_on_all_threads(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = Mock(wraps=pass_times.measure)
    monkeypatch.setattr(pass_times, "measure", measured)
    of = partial(conversion_us, detect().with_threads(threads).canonical)
    first, halo = ordered((0, 3, 1, 2), SHAPE), TensorLayout((1, 2, 3), 1, (1, 2))
    longer = (8, *SHAPE[1:])
    short = of(SHAPE, "f32", plain(SHAPE), first)
    long = of(longer, "f32", plain(longer), ordered((0, 3, 1, 2), longer))
    assert 0 < short < (long if threads == 1 else float("inf"))  # a second one may wait for others
    assert 0 < of(SHAPE, "bf16", plain(SHAPE), halo) + of(SHAPE, "i1", first, halo) < float("inf")
    assert of(SHAPE, "complex<f32>", plain(SHAPE), first) == float("inf")
    assert of(SHAPE, "f32", halo, first) == float("inf")
    assert [call.kwargs["threads"] for call in measured.call_args_list] == [threads] * 4


def test_names_of_layouts() -> None:
    assert plain(SHAPE).name == "plain"
    assert ordered((0, 3, 1, 2), SHAPE).name == "axes 3,1,2"
    assert TensorLayout((3, 1, 2), 1, (1, 2)).name == "axes 3,1,2 halo 1"
    assert ordered((1, 0), (1, 5)) == plain((1, 5))


Times = dict[tuple[str, bool], float]
"""Of passes, by the op that ends one and whether it reads its tensors as the model has them."""


class MadeUp:
    """Passes of a program (`tilewise.search.networks.planning.Passes`) of given times, or 1."""

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
    monkeypatch.setattr(pass_times, "BUDGET_S", 1e-4)


@pytest.fixture(scope="module")
def resnet() -> ModuleProgram:
    """Channels first."""
    return program_of(MODELS["resnet50"](True), "torch")


@pytest.mark.parametrize(("name", "spelling"), [("resnet50", "torch"), ("bert", "linalg")])
def test_passes_are_those_of_the_runner(name: str, spelling: str) -> None:
    graph = MODELS[name](True)
    program = program_of(graph, spelling)
    outline = read_outline(spelled(graph, spelling).encode())
    assert replace(outline, constants=()) == replace(program.outline, constants=())
    plan = plan_of(program, 1)
    times = PassTimes(outline, detect())
    found = [*times.of(plan)]
    made = {one.label: one.node for one in LoweredNetwork(plan, program).parts}
    layers = {node.problem for node in plan.nodes}
    passes = {label for label in made if label not in layers and not label.startswith("copy of")}
    assert {one.label for one in found} == passes
    assert found == [*times.of(plan)], "each is timed once"
    assert all(0 < one.time_us < 1e6 for one in found)
    done = [number for one in found for number in one.nodes]
    assert sorted(done) == [i for i, node in enumerate(plan.nodes) if node.found is None]


def test_a_pool_follows_the_order_in_which_it_is_faster(resnet: ModuleProgram) -> None:
    def plan(times: Times) -> Plan:
        costs = Drawn(detect(), Random(2), copy_us=0.5)
        return planned(resnet.outline.graph, costs, PlanRequest(), MadeUp(resnet, times))

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


@pytest.mark.full
def test_a_network_with_its_passes_in_another_order_runs_right(resnet) -> None:
    graph, seed = MODELS["resnet50"](True), 1
    times = {("pool", True): 99.0, ("other", True): 99.0, ("elementwise", True): 9.0}
    plan = plan_of(resnet, seed, passes=MadeUp(resnet, times))
    moved = {node.kind for node in plan.nodes
             if node.found is None and not node.reads[0].layout.is_plain}  # fmt: skip
    assert moved >= {"pool", "other"}
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
      %zeros = arith.constant dense<0.0> : tensor<4x8xf32>
      %l = math.log %x : tensor<4x8xf32>
      %m = linalg.matmul ins(%l, %w : tensor<4x8xf32>, tensor<8x8xf32>)
        outs(%zeros : tensor<4x8xf32>) -> tensor<4x8xf32>
      %t = math.tanh %m : tensor<4x8xf32>
      return %t : tensor<4x8xf32>
    }"""
    outline = read_outline(source.encode())
    costs = Drawn(detect(), Random(1), 1.0)
    plan = planned(outline.graph, costs, PlanRequest(), PassTimes(outline, detect()))
    assert [plan.nodes[number].op for one in plan.passes for number in one.nodes] == ["math.tanh"]
    two = source + source.replace("@main", "@other")
    assert read_outline(f"module {{ {two} }}".encode()).refused.startswith("has 2 functions")
