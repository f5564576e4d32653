"""Select and prove the scripts of a run within its time."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.mlir.tuning_spec.config import AnySchedule
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import fast_algorithm
from tilewise.kernels.target import Target
from tilewise.search.progress import OnPhase, SearchPhase, ignore_phase
from tilewise.search.records import TrialRecord, TuneResult, Winner
from tilewise.service.jobs.outcome import Attempt
from tilewise.service.runs.process import load
from tilewise.service.workers.entry_points import EMITTER, SCRIPTED

MOST_PROOFS = 3
PROOF_LIMIT_S = 60.0
LEAST_PROOF_S = 10.0  # for the first one, however little is left: without it there is no script
MOST_TRIED = 16  # of the fastest trials, for one that has a script


@dataclass
class Proofs:
    """The proofs of one run: of the fastest schedules, between its search and its final benchmark.

    `attempt` tries to prove one schedule's script within some seconds. `has_seconds` if the run is
    bound in time. `on_phase` gets how many proofs there are and how many have ended.
    """

    problem: Problem
    target: Target
    attempt: Callable[[AnySchedule, float], Attempt]
    should_stop: Callable[[], bool]
    has_seconds: bool
    on_phase: OnPhase = ignore_phase
    attempts: list[Attempt] = field(default_factory=list)

    def prove(self, ranking: Sequence[TrialRecord], until: float | None) -> None:
        """Prove the scripts of the fastest trials, as many as end in time.

        The first is proven however late it is; its duration shows whether there is time for
        another.
        """
        timed = [trial.schedule for trial in ranking if trial.state == "timed"]
        schedules = with_a_script(self.problem, self.target, timed[:MOST_PROOFS], ranking)
        longest = 0.0
        for done, schedule in enumerate(schedules):
            self.on_phase(SearchPhase("proof", done, len(schedules)))
            begin = time.monotonic()
            left = PROOF_LIMIT_S if until is None else until - begin
            if self.should_stop() or (self.attempts and left < longest):
                return
            limit = min(PROOF_LIMIT_S, max(LEAST_PROOF_S, left))
            self.attempts.append(self.attempt(schedule, limit))
            longest = max(longest, time.monotonic() - begin)

    def complete(self, result: TuneResult, best: Winner) -> None:
        """Prove the winner of the final benchmark unless the budget is in seconds."""
        tried = [attempt.schedule for attempt in self.attempts]
        finalists = [best.schedule, *(schedule for schedule, _ in best.runners_up)][:MOST_PROOFS]
        if tried:
            missing = [] if self.has_seconds or best.schedule in tried else [best.schedule]
        else:
            missing = with_a_script(self.problem, self.target, finalists, result.trials)
        for done, schedule in enumerate(missing):
            if self.should_stop():
                return
            self.on_phase(SearchPhase("proof", done, len(missing)))
            self.attempts.append(self.attempt(schedule, PROOF_LIMIT_S))


def with_a_script(
    problem: Problem, target: Target, fastest: Sequence[AnySchedule], trials: Sequence[TrialRecord]
) -> list[AnySchedule]:
    """Return the fastest schedules that have scripts, as far as there are any.

    Strassen, fused pixels, single columns and unequal split-K parts have no script. If none of the
    fastest has one, the fastest trial that does replaces the last. For Strassen, whose nearest
    rivals have none either, the fastest direct schedules come first, and only the winner of the
    others, to report why. Where no trial has one, untimed schedules that are like them come before
    the winner.
    """
    if target.kind == "iree" or any(_has_script(problem, schedule) for schedule in fastest):
        return list(fastest)
    is_filtered = any(map(_is_filtered, fastest))
    kept = fastest[: 1 if is_filtered else MOST_PROOFS - 1]
    timed = [(t.measurement.time_us, t) for t in trials if t.measurement]
    ranked = [trial for _, trial in sorted(timed, key=lambda pair: pair[0])]
    nearest = [trial.schedule for trial in ranked if not _is_filtered(trial.schedule)]

    def first_able(schedules: Sequence[AnySchedule], wanted: int) -> list[AnySchedule]:
        able = (one for one in schedules[:MOST_TRIED] if _has_script(problem, one))
        return list(islice(able, wanted))

    if found := first_able(nearest, MOST_PROOFS - len(kept)):
        return [*found, *kept] if is_filtered else [*kept, *found]
    points = [trial.params for trial in ranked]
    able = first_able(load(SCRIPTED)(problem, target, points, MOST_TRIED), MOST_PROOFS)
    return [*able, *fastest[:1]] if able else list(fastest)


def _is_filtered(schedule: AnySchedule) -> bool:
    """Whether a schedule does fewer multiplications than the direct method."""
    return fast_algorithm(schedule.to_json()) is not None


def _has_script(problem: Problem, schedule: AnySchedule) -> bool:
    """Whether there is a script at all, short of its proof."""
    try:
        load(EMITTER)(problem, schedule)
    except KernelsError:
        return False
    return True
