"""Layers timed again with their weights displaced: the fastest schedule of each algorithm."""

import pytest

from examples.models.graph import Graph, Value
from examples.models.spellings import spelled
from tests.search.networks.lowering.drawn import timed
from tilewise.kernels.mlir.frontend.read import read_graph
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
    Step,
    Sweep,
    Tile,
    Winograd,
)
from tilewise.kernels.target import detect
from tilewise.search.networks import cold_weights
from tilewise.search.networks.cold_weights import in_turns, retimed, weights_bytes, with_prefetch
from tilewise.search.networks.costs import LayerTimes
from tilewise.search.networks.variants import TensorLayout

CONV = "conv2d:n=1,h=8,w=8,ci=8,co=16,kh=3,kw=3,dtype=f32,bias,weights=constant"
STORED_US = 1e9
IN_PLACE = Schedule((Register(rows=4, cols=16),))
PACKED = Schedule((Pack("B"), Register(rows=6, cols=16)))
FILTERED = Schedule((Winograd(2), Pack("B"), Pack("A"), Register(rows=6, cols=16)))


def untaken(*schedules: Schedule) -> LayerTimes:
    """Return times that nobody took of given schedules."""
    found = tuple(timed(one, STORED_US) for one in schedules)
    return LayerTimes(lambda _problem: found, lambda *_copy: 3.0)


def test_the_fastest_of_each_algorithm_is_offered() -> None:
    costs = retimed(untaken(IN_PLACE, PACKED, FILTERED), detect(), 1 << 16)
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
    (packed,) = retimed(untaken(PACKED), detect(), 1 << 16).schedules(CONV)
    assert packed.hash in (PACKED.hash, ahead.hash)


def test_what_was_read_in_place_is_also_packed_and_fetched() -> None:
    ahead = Schedule((Tile("co", 16), Pack("B"), Prefetch("B"), Register(rows=4, cols=16)))
    in_place = Schedule((Tile("co", 16), Register(rows=4, cols=16)))
    tried = with_prefetch([timed(in_place, 1.0), timed(PACKED, 2.0)])
    assert [(one.hash, twin) for one, twin in tried] == [
        (in_place.hash, in_place.hash), (PACKED.hash, PACKED.hash), (ahead.hash, in_place.hash),
    ]  # fmt: skip
    (found,) = retimed(untaken(in_place), detect(), 1 << 16).schedules(CONV)
    assert found.hash in (in_place.hash, ahead.hash)


@pytest.mark.parametrize(
    "steps", [(Register(4, 16), Sweep("co")), (Pack("B"), Prefetch("B"), Register(4, 16))]
)
def test_nothing_is_added_to_sweeps_and_to_what_fetches(steps: tuple[Step, ...]) -> None:
    one = timed(Schedule(steps), 1.0)
    assert with_prefetch([one]) == ((one, one.hash),)


def test_what_computes_something_else_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    results = iter([b"right", b"wrong"])
    monkeypatch.setattr(cold_weights, "_result", lambda *_: next(results))
    interleave, met = cold_weights.interleave, []
    monkeypatch.setattr(
        cold_weights,
        "interleave",
        lambda runs, *more: met.append(len(runs)) or interleave(runs, *more),
    )
    (packed,) = retimed(untaken(PACKED), detect(), 1 << 16).schedules(CONV)
    assert packed.hash == PACKED.hash
    assert next(results, None) is None and met == [1]


@pytest.mark.parametrize(
    ("problem", "schedule"),
    [
        (CONV.replace(",weights=constant", ""), IN_PLACE),  # nobody displaces what is just made
        (CONV, Schedule((Tile("oh", 2), Tile("oh", 3), Register(rows=6, cols=16)))),
    ],
)
def test_others_keep_their_times(problem: str, schedule: Schedule) -> None:
    costs = untaken(schedule)
    assert retimed(costs, detect(), 1 << 16).schedules(problem) == costs.schedules(problem)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("schedule", [IN_PLACE, PACKED])
def test_runs_in_turns_compute_the_problem(schedule: Schedule, threads: int) -> None:
    if detect().cores < threads:
        pytest.skip("one processor is usable here; two threads need two")
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
    pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")
    graph = Graph("net", Value("given", (1, 9, 9, 8)))
    graph.linear(graph.mean_pool(graph.conv(graph.given, 16, 3)), 24)
    assert weights_bytes(read_graph(spelled(graph).encode())) == 4 * (3 * 3 * 8 * 16 + 16 * 24)
