import pytest

from benchmarks.replay.problems import UNSEEN, relatives
from benchmarks.searching import warm_start
from benchmarks.searching.warm_start import compare
from tilewise.kernels.problem import Matmul, parse_problem
from tilewise.kernels.target import detect
from tilewise.search.records import Measurement, Solved, TrialRecord
from tilewise.search.space.space import Space
from tilewise.search.transfer.nearness import distance


def trials_of(times_us):
    """Different schedules, one for each time; those without a time failed."""
    space = Space(parse_problem("matmul:m=64,n=64,k=64,dtype=f32"), detect())
    plain = {p.name: p.values[0] for p in space.parameters}
    tiles = space.values("tile")
    return tuple(
        TrialRecord(
            number=number,
            schedule=space.schedule(plain | {"tile": tiles[number]}),
            params={},
            state="timed" if us else "failed",
            origin="prior",
            measurement=Measurement(1.0, (1.0, 1.0), us) if us else None,
        )
        for number, us in enumerate(times_us)
    )


@pytest.mark.parametrize("text", UNSEEN.values())
def test_relatives_serve_the_problem_and_are_another(text):
    problem = parse_problem(text)
    space = Space(problem, detect())
    for near in relatives(problem).values():
        solved = Solved(near, detect().canonical, ())
        assert 0 < distance(space, solved) <= 2.5
        assert near.flops != problem.flops


def test_a_convolutions_pixels_are_doubled_whatever_its_stride_and_padding():
    text = "conv2d:n=2,h=23,w=31,ci=8,co=9,kh=5,kw=3,stride=2,dilation=2,pad=1,dtype=f32"
    problem = parse_problem(text)
    rows, cols = relatives(problem)["rows"], relatives(problem)["cols"]
    assert (rows.oh, rows.ow) == (2 * problem.oh, 2 * problem.ow)
    assert cols.co == 5


def test_only_warm_searches_know_the_relatives_and_the_best_is_of_all(monkeypatch):
    """A near trial is told by what is timed again; warm searches meet a better one later."""
    problem = parse_problem("matmul:m=64,n=64,k=64,dtype=f32")
    trials = trials_of([300.0, 102.0, 100.0, 103.0])
    asked = []

    def searched(what, request, known, costs):
        asked.append((what, request.seed, [solved.problem for solved in known]))
        found = (trials[3], trials[1]) if known else (trials[3], trials[0])
        return warm_start.Searched(found, request.trials)

    def standing(what, schedules, rounds):
        times = {trial.schedule.hash: trial.measurement.time_us for trial in trials}
        least = min(times[found] for found in schedules)
        return {found: times[found] / least for found in schedules}

    monkeypatch.setattr(warm_start, "searched", searched)
    monkeypatch.setattr(warm_start, "standing", standing)
    row = compare(problem, seeds=2, trials=7, costs=None)
    near = list(relatives(problem).values())
    assert asked == [
        entry
        for seed in (0, 1)
        for entry in [
            *((one, warm_start.FIRST_SEED + seed, []) for one in near),
            (problem, seed, []),
            (problem, seed, near),
        ]
    ]
    assert row.among == "2 of 2 of 2"
    assert (row.cold, row.warm) == ([1, 1], [1, 1])
    monkeypatch.setattr(warm_start, "NEAR", 1.005)
    row = compare(problem, seeds=2, trials=7, costs=None)
    assert (row.cold, row.warm) == ([8, 8], [2, 2])


@pytest.mark.full
def test_cold_and_warm_searches_are_compared_by_what_they_found_together():
    problem = parse_problem("matmul:m=24,n=40,k=16,dtype=f32")
    assert isinstance(problem, Matmul)
    row = compare(problem, seeds=1, trials=5, costs=None)
    best, close, wide = (int(word) for word in row.among.split(" of "))
    assert 1 <= best <= close <= wide <= 10
    assert min(row.cold + row.warm) <= 5
    assert all(1 <= count <= 6 for count in row.cold + row.warm)
