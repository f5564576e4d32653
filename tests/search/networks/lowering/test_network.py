"""A network computes what PyTorch computes in f64, whatever schedules and layouts its plan has."""

import json
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from examples.models import MODELS
from examples.models.graph import Graph, Value
from tests.cases import some
from tests.search.networks.lowering.drawn import (
    apart,
    computed,
    labels,
    loaded,
    plan_of,
    program_of,
)
from tilewise.kernels.mlir.frontend.program import ModuleProgram
from tilewise.kernels.mlir.frontend.read import read_program
from tilewise.kernels.target import detect
from tilewise.search.errors import NetworkError
from tilewise.search.networks.lowering.memory import Lifetime, placed
from tilewise.search.networks.lowering.network import LoweredNetwork
from tilewise.search.networks.plan import Plan

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")


def test_no_two_live_buffers_overlap() -> None:
    for seed in range(60):
        random = Random(seed)
        lifetimes = []
        for _ in range(random.randint(1, 24)):
            first = random.randint(-1, 20)
            lifetimes.append(Lifetime(random.randint(0, 700), first, first + random.randint(0, 8)))
        made = placed(lifetimes)
        used = {}
        for number, (one, at) in enumerate(zip(lifetimes, made.offsets, strict=True)):
            assert at % 64 == 0
            assert at + one.size <= made.size <= made.apart
            for step in range(one.first, one.last + 1):
                for byte in range(at, at + one.size):
                    assert used.setdefault((step, byte), number) == number


def test_memory_is_used_again() -> None:
    chain = [Lifetime(1000, step, step + 1) for step in range(10)]
    assert placed(chain).size == 2 * 1024
    assert placed([]).size == 0


MODELS_IN = [("resnet50", "torch", 1e-5), ("mobilenet_v2", "linalg", 1e-5),
             ("mlp", "torch", 2e-2), ("bert", "stablehlo", 1e-5)]  # fmt: skip
HAVE_HALOS = ("resnet50", "mobilenet_v2")


@pytest.fixture(scope="module", params=some([(m,) for m in MODELS_IN], of=3), ids=lambda m: m[0])
def case(request: pytest.FixtureRequest) -> tuple[Graph, str, float, ModuleProgram]:
    name, spelling, tolerance = request.param
    graph = MODELS[name](True)
    return graph, spelling, tolerance, program_of(graph, spelling)


def test_a_network_computes_its_model(case: tuple[Graph, str, float, ModuleProgram]) -> None:
    pytest.importorskip("torch", reason="the extra `peers` installs torch, which computes it")
    from examples.models.pytorch import reference

    graph, spelling, tolerance, program = case
    plan = plan_of(program, 0, copy_us=0.1)
    network = loaded(Plan.from_json(json.loads(json.dumps(plan.to_json()))), program)
    for random in (1, 2):
        argument = graph.argument(random)
        found = computed(network, graph, spelling, argument)
        assert apart(found, reference(graph, argument)) < tolerance, plan.conversions
    layouts = {use.layout.name for node in plan.nodes for use in node.reads}
    halos = [name for name in layouts if "halo" in name]
    assert bool(halos) == (graph.name in HAVE_HALOS)
    assert (graph.name == "bert") == any(",add," in label for label in labels(network))


@pytest.fixture(scope="module")
def residual() -> tuple[Graph, ModuleProgram]:
    """A residual that is read again after a layer has taken it in, and sums that no layer takes."""
    graph = Graph("residual", Value("given", (1, 9, 9, 8)))
    x = graph.conv(graph.given, 8, 3)
    y = graph.add(graph.conv(graph.conv(x, 8, 3), 8, 1, relu=False), x)
    z = graph.add(graph.conv(y, 8, 3), y, relu=True)
    graph.linear(graph.mean_pool(graph.max_pool(graph.add(z, x))), 12)
    return graph, program_of(graph, "linalg")


def test_sums_of_layers_that_are_read_again(residual: tuple[Graph, ModuleProgram]) -> None:
    pytest.importorskip("torch", reason="the extra `peers` installs torch, which computes it")
    from examples.models.pytorch import reference

    graph, program = residual
    network = loaded(plan_of(program, 5), program)
    assert any(label.startswith("rows of 648: add") for label in labels(network))
    assert any("init=accumulate" in label for label in labels(network))
    argument = graph.argument(6)
    expected = reference(graph, argument)
    assert apart(computed(network, graph, "linalg", argument), expected) < 1e-5
    first = network.results[0].copy()
    network()  # the arguments lie there still
    assert np.array_equal(network.results[0], first)
    times = network.times(3)
    assert [label for label, _ in times] == labels(network)
    assert all(time_us > 0 for _, time_us in times)


@pytest.mark.full
def test_two_threads_compute_the_same(residual: tuple[Graph, ModuleProgram]) -> None:
    if detect().cores < 2:
        pytest.skip("one processor is usable here; two threads need two")
    graph, program = residual
    one, two = (loaded(plan_of(program, 3, threads), program) for threads in (1, 2))
    assert two.about["threads"] == 2
    argument = graph.argument(4)
    first = computed(one, graph, "linalg", argument)
    for _ in range(20):
        assert apart(computed(two, graph, "linalg", argument), first) < 1e-5


@pytest.mark.full
def test_weights_are_read_from_the_arena_alone(residual: tuple[Graph, ModuleProgram]) -> None:
    graph, program = residual
    weights = {key: value.copy() for key, value in program.weights.items()}
    network = loaded(plan_of(program, 5), replace(program, weights=weights))
    before = computed(network, graph, "linalg", graph.argument(7))
    for value in weights.values():
        value[...] = np.nan
    assert np.array_equal(computed(network, graph, "linalg", graph.argument(7)), before)
    assert len(network.weights) > sum(v.nbytes for v in weights.values()) // 2


def test_what_does_not_run_here_is_named(residual: tuple[Graph, ModuleProgram]) -> None:
    _, program = residual
    plan = plan_of(program, 5)
    with pytest.raises(NetworkError, match="this machine is cpu:"):
        LoweredNetwork(replace(plan, target="cpu:other,threads=1"), program)
    untuned = tuple(replace(node, schedule=None) for node in plan.nodes)
    with pytest.raises(NetworkError, match="more --trials"):
        LoweredNetwork(replace(plan, nodes=untuned), program)
    with pytest.raises(NetworkError, match="make the plan again"):
        LoweredNetwork(replace(plan, nodes=plan.nodes[1:]), program)
    other = Graph("other", Value("given", (1, 9, 9, 8)))
    other.linear(other.mean_pool(other.conv(other.given, 8, 3)), 12)
    with pytest.raises(NetworkError, match=r"nodes and .* tensors, the module"):
        LoweredNetwork(plan_of(program_of(other, "linalg"), 1), program)
    log = "func.func @main(%x: T) -> T { %y = math.log %x : T return %y : T }"
    log = read_program(log.replace("T", "tensor<3x5xf32>").encode())
    reason = r"math.log at @main.* which native networks do not support; `tilewise model` runs"
    with pytest.raises(NetworkError, match=reason):
        LoweredNetwork(plan_of(log, 1), log)


def test_a_strict_plan_is_of_the_same_module_and_says_so() -> None:
    graph = Graph("strict", Value("given", (1, 9, 9, 8)))
    graph.conv(graph.given, 16, 3)
    program = program_of(graph, "linalg")
    outline = program.outline.with_accuracy("strict")
    plan = plan_of(replace(program, outline=outline), 0, accuracy="strict")
    plan = Plan.from_json(json.loads(json.dumps(plan.to_json())))
    assert plan.accuracy == "strict"
    assert all("accuracy=strict" in node.problem for node in plan.nodes if node.problem)
    argument = graph.argument(1)
    networks = (loaded(one, program) for one in (plan, plan_of(program, 0)))
    assert apart(*(computed(one, graph, "linalg", argument) for one in networks)) < 1e-5
    with pytest.raises(NetworkError, match=r"of the plan is .*accuracy=strict, that of the module"):
        LoweredNetwork(replace(plan, accuracy="standard"), program)
