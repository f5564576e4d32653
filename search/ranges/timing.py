"""Time schedules at one size of a range: checked, interleaved, on several buffer placements."""

from collections.abc import Callable, Sequence
from math import exp
from statistics import median

from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target.model import Target
from tilewise.search.final_benchmark.rounds import rounds_of
from tilewise.search.runner.protocol import CandidateFailureError
from tilewise.search.runner.runner import Runner
from tilewise.search.timing.cold import evicting_s
from tilewise.search.timing.samples import sample_cost

SCREENING_ROUNDS = 3  # 1 in cold mode, whose samples are slow and hardly differ
OUT_OF_REACH = 1.5  # times the fastest: who is so slow is not timed in further rounds
LEAST_ROUNDS, MOST_ROUNDS, PLACEMENTS = 2, 20, 3
ROUNDS_S = 3.0  # of all placements together
OnFailure = Callable[[Schedule, str], None]


def times_us(
    runner: Runner,
    schedules: Sequence[Schedule],
    target: Target,
    seconds: float | None,
    on_failure: OnFailure,
) -> dict[Schedule, float]:
    """Return the time of each schedule in us.

    Each is compared with the reference first, on poisoned memory. All run once to be screened;
    those within reach of the fastest run again in more rounds, at least `LEAST_ROUNDS`, which take
    `seconds`, or `ROUNDS_S` for None. One that fails or is wrong has no time, and `on_failure` gets
    it with the reason.
    """
    is_cold = runner.cache == "cold"
    rough = _timed(runner, schedules, 1 if is_cold else SCREENING_ROUNDS, 1, on_failure)
    if not rough:
        return {}
    limit = OUT_OF_REACH * min(rough.values())
    near = {one: taken for one, taken in rough.items() if taken <= limit}
    round_s = sum(sample_cost(taken / 1e6, target.threads, is_cold) for taken in near.values())
    round_s += len(near) * evicting_s(target) if is_cold else 0.0
    fitting = int((ROUNDS_S if seconds is None else seconds) / PLACEMENTS / round_s)
    rounds = min(MOST_ROUNDS, max(LEAST_ROUNDS, fitting))
    return rough | _timed(runner, list(near), rounds, PLACEMENTS, on_failure)


def _timed(
    runner: Runner,
    schedules: Sequence[Schedule],
    rounds: int,
    placements: int,
    on_failure: OnFailure,
) -> dict[Schedule, float]:
    """Return times of interleaved rounds in us, without the schedules that fail."""
    groups, found = [list(schedules)], dict[Schedule, float]()
    while groups:
        if not (group := groups.pop()):
            continue
        steps = [list(one.to_json()) for one in group]
        try:
            timed = rounds_of(runner.time_finalists(steps, rounds, False, placements))
        except CandidateFailureError as failure:
            middle = len(group) // 2
            if failure.index is None and middle:  # any of them failed: halves are timed apart
                groups += group[:middle], group[middle:]
            else:
                on_failure(group.pop(failure.index or 0), f"{failure.kind}: {failure}")
                groups.append(group)
            continue
        fastest = min(range(len(group)), key=lambda index: timed.standings[index])
        base_us = 1e6 * median(timed.undisturbed_times(fastest).values())
        for index, one in enumerate(group):
            found[one] = base_us * exp(timed.standings[index] - timed.standings[fastest])
    return found
