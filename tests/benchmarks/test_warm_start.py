from argparse import ArgumentParser

import pytest

from benchmarks.replay.problems import RELATIVES, UNSEEN, relatives
from benchmarks.searching import warm_start
from benchmarks.searching.warm_cold import add_costs_of, costs_of
from benchmarks.searching.warm_start import Row, Searched, compare, standing, summary
from tilewise.kernels.problem import Matmul, parse_problem
from tilewise.kernels.target import detect
from tilewise.search.model.amounts import DEFAULT_WEIGHTS, FITTED_WEIGHTS
from tilewise.search.records import Measurement, Solved, TrialRecord
from tilewise.search.runner.protocol import CandidateFailureError
from tilewise.search.runner.runner import Runner
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


def test_counts_to_the_first_trial_of_the_best():
    trials = trials_of([300.0, 200.0, 100.0])
    search = Searched(trials, most=8)
    assert search.first_of({trials[1].schedule.hash, trials[2].schedule.hash}) == 2
    assert search.first_of({trials[0].schedule.hash}) == 1
    assert search.first_of(set()) == 9


def test_a_search_in_which_nothing_ran_has_nothing_to_time_again():
    search = Searched(trials_of([None, None]), most=2)
    assert search.near_ones() == {}
    assert standing(parse_problem("matmul:m=64,n=64,k=64,dtype=f32"), {}, 3) == {}


def test_a_schedule_that_fails_when_it_is_timed_again_is_left_out(monkeypatch):
    """With the others timed all the same; a failure of nobody's in particular is told."""
    schedules = {trial.schedule.hash: trial.schedule for trial in trials_of([3.0, 2.0, 1.0])}
    met = []

    class Failing(Runner):
        def finals(self, steps, *given, **named):
            met.append(len(steps))
            if len(steps) == 3:
                raise CandidateFailureError("wrong", "largest deviation 1", index=1)
            return super().finals(steps, *given, **named)

    monkeypatch.setattr(warm_start, "Runner", Failing)
    problem = parse_problem("matmul:m=64,n=64,k=64,dtype=f32")
    stood = standing(problem, schedules, 3)
    first, _, third = schedules
    assert (met, set(stood)) == ([3, 2], {first, third})
    assert min(stood.values()) == 1.0

    def crash(*_given, **_named):
        raise CandidateFailureError("crash", "SIGSEGV")

    monkeypatch.setattr(Failing, "finals", crash)
    with pytest.raises(CandidateFailureError, match="SIGSEGV"):
        standing(problem, schedules, 3)


def test_what_came_near_the_fastest_is_timed_again():
    trials = trials_of([None, 105.0, 100.0, 107.0])
    near = Searched(trials, most=4).near_ones()
    assert set(near) == {trials[1].schedule.hash, trials[2].schedule.hash}


def test_a_search_that_never_came_near_is_marked():
    text = "matmul:m=4,n=4,k=4,dtype=f32"
    row = Row([10, 97, 97], [5, 6, 7], text, 96, "1 of 2 of 3")
    assert "97 (68.0; 10 to 97, 2 never)" in str(row)
    assert "6 (6.0; 5 to 7)" in str(row)
    assert row.ratio == pytest.approx(6 / 97)
    assert "cold 97, warm 6 (68, 6); 2 searches never came near" in summary([row])


@pytest.mark.parametrize("text", UNSEEN.values())
def test_relatives_serve_the_problem_and_are_another(text):
    problem = parse_problem(text)
    space = Space(problem, detect())
    for near in relatives(problem).values():
        solved = Solved(near, detect().canonical, ())
        assert 0 < distance(space, solved) <= 2.5
        assert near.flops != problem.flops


def test_the_names_of_the_recorded_relatives_stay():
    assert len(RELATIVES) == 12
    assert RELATIVES["odd-f32-cols"] == "matmul:m=200,n=259,k=391,dtype=f32"
    conv = "conv2d:n=1,h=58,w=58,ci=128,co=128,kh=3,kw=3,dtype=f32"
    assert RELATIVES["conv3x3-f32-rows"] == conv


def test_a_convolutions_pixels_are_doubled_whatever_its_stride_and_padding():
    text = "conv2d:n=2,h=23,w=31,ci=8,co=9,kh=5,kw=3,stride=2,dilation=2,pad=1,dtype=f32"
    problem = parse_problem(text)
    rows, cols = relatives(problem)["rows"], relatives(problem)["cols"]
    assert (rows.oh, rows.ow) == (2 * problem.oh, 2 * problem.ow)
    assert cols.co == 5


@pytest.mark.parametrize(
    ("text", "kinds", "cols"),
    [
        ("matmul:m=64,n=1,k=64,dtype=f32", {"rows"}, None),
        ("conv2d:n=1,h=9,w=9,ci=12,co=12,kh=3,kw=3,groups=12,dtype=f32", {"rows"}, None),
        ("conv2d:n=1,h=9,w=9,ci=12,co=18,kh=3,kw=3,groups=6,dtype=f32", {"rows", "cols"}, 12),
    ],
)
def test_what_cannot_be_halved_stays(text, kinds, cols):
    near = relatives(parse_problem(text))
    assert set(near) == kinds
    assert cols is None or near["cols"].co == cols


def test_costs_that_searches_begin_with_anyway_are_refused(capsys):
    parser = ArgumentParser()
    add_costs_of(parser)
    assert parser.parse_args([]).costs_of is None
    cpu = parser.parse_args(["--costs-of", "cascadelake"]).costs_of
    assert (
        costs_of(parser, cpu, [DEFAULT_WEIGHTS, FITTED_WEIGHTS[cpu]])
        == FITTED_WEIGHTS[cpu]
        != DEFAULT_WEIGHTS
    )
    with pytest.raises(SystemExit):
        costs_of(parser, cpu, [FITTED_WEIGHTS[cpu], FITTED_WEIGHTS[cpu]])
    assert "begin with these" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parser.parse_args(["--costs-of", "pentium9"])


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
