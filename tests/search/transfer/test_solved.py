"""What a search tells later ones."""

from tests.search.targets import SQUARE, WIDE
from tests.search.transfer.searches import HERE
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.records import MOST_SOLVED, Solved, TrialRecord
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
