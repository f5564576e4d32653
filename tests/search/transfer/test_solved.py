"""What a search tells later ones."""

from tests.search.targets import SQUARE, WIDE
from tests.search.transfer.searches import HERE
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.records import MOST_EARLY, MOST_SOLVED, Solved, TrialRecord
from tilewise.search.space.space import Space
from tilewise.search.timing.samples import summarise


def test_of_trials_the_fastest_that_were_timed_to_the_end_are_told() -> None:
    space = Space(SQUARE, WIDE)
    base = prior_points(AnalyticalModel.shipped(space), 1)[0]
    schedule = space.schedule(base)

    def trial(number: int, state: str, seconds: float | None) -> TrialRecord:
        speed = summarise([seconds] * 6, SQUARE.flops) if seconds else None
        return TrialRecord(number, schedule, base, state, "test", measurement=speed)

    trials = [trial(i, "timed", 1e-3 * (100 - i)) for i in range(MOST_SOLVED + 5)]
    trials += [trial(98, "pruned", 1e-6), trial(99, "failed", None)]
    times = [time_us for _, time_us in Solved.of(SQUARE, HERE, trials).points]
    assert times == sorted(t.measurement.time_us for t in trials[:-2])[:MOST_SOLVED]


def test_of_the_slower_those_of_its_first_trials_are_told_and_those_that_were_stopped() -> None:
    point = prior_points(AnalyticalModel.shipped(Space(SQUARE, WIDE)), 1)[0]
    schedule = Space(SQUARE, WIDE).schedule(point)

    def trial(number: int, state: str) -> TrialRecord:
        speed = summarise([1e-3 * (number + 1)] * 6, SQUARE.flops)
        return TrialRecord(number, schedule, point, state, "test", measurement=speed)

    trials = [trial(n, "pruned" if n in (2, 50, MOST_EARLY) else "timed") for n in range(200)]
    known = Solved.of(SQUARE, HERE, trials)
    numbers, slower = (
        [round(time_us / 1e3) - 1 for _, time_us in some] for some in (known.points, known.slower)
    )
    assert numbers == [n for n in range(MOST_SOLVED + 1) if n != 2]
    assert sorted(slower) == [n for n in range(MOST_EARLY) if n > MOST_SOLVED or n == 2]
