"""The trials of one search: proposed and compiled ahead, timed, stored, learnt from."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import log
from statistics import median
from typing import Any

from optuna.samplers import BaseSampler
from optuna.study import Study

from tilewise.search.engine.study import Proposal, SearchStudy
from tilewise.search.helpers import Helped, RemoteTrial
from tilewise.search.model.levels import TimeModel
from tilewise.search.records import TrialRecord, TuneRequest, rescaled, time_us
from tilewise.search.runner.protocol import CandidateFailureError, Message, TrialReply
from tilewise.search.runner.runner import Runner
from tilewise.search.space.points import Point
from tilewise.search.store import TrialStore
from tilewise.search.timing.samples import summarise
from tilewise.search.timing.speed_factor import STEADY, WORTH, is_near, is_usual, undisturbed_factor

TryOut = Callable[[list[Any], float | None, Message | None], TrialReply]
"""Tries steps, given the best seconds and a control, as `Runner.trial`."""


def attempt(try_out: TryOut, candidate: RemoteTrial, flops: int) -> TrialRecord:
    """Return the trial of a candidate, also if it failed."""
    number, origin = candidate.number, candidate.origin
    schedule, point = candidate.schedule, candidate.params
    try:
        reply = try_out(candidate.steps, candidate.best_s, candidate.control)
    except CandidateFailureError as failure:
        return TrialRecord(number, schedule, point, "failed", origin, failure.kind, str(failure))
    return TrialRecord(
        number=number,
        schedule=schedule,
        params=point,
        state="pruned" if reply.pruned else "timed",
        origin=origin,
        measurement=summarise(
            [taken / (reply.speed_factor or 1.0) for taken in reply.times], flops
        ),
        samples=reply.times,
        speed_factor=reply.speed_factor,
        takes_over=reply.takes_over,
        rejected=reply.rejected,
        compile_s=reply.compile_s,
        max_error=reply.max_error,
        message=_describe_errors(reply.accuracy),
    )


def _describe_errors(accuracy: dict[str, float]) -> str:
    """Return the largest relative rms error as text; empty for the direct method."""
    if not accuracy:
        return ""
    kind = max(accuracy, key=lambda name: accuracy[name])
    return f"rms error {accuracy[kind]:.2f} times the direct method's, on {kind} operands at most"


def takes_over(trial: TrialRecord, speed_factors: Sequence[float]) -> bool:
    """Return whether a trial becomes the control: clearly faster at a usual speed factor."""
    return trial.takes_over and is_usual(trial.speed_factor or 1.0, speed_factors)


@dataclass
class Exploration:
    """The state of one search, which can be rebuilt from the store.

    Attributes:
        starts: points from near problems, best first.
        prior: the model's points, if not those of `prior_points`.
        sampler: replaces the one that the request names.
        best: the fastest trial that was timed to the end.
        control: what is timed in the rounds of each trial.
        speed_factors: speed factors of trials timed to the end, in this or an earlier run.
        out: what other machines try, by candidate number, and the scale of times then.
    """

    model: TimeModel
    request: TuneRequest
    store: TrialStore
    starts: list[Point]
    prior: Sequence[Point] | None = None
    trials: list[TrialRecord] = field(default_factory=list)
    best: TrialRecord | None = None
    control: TrialRecord | None = None
    speed_factors: list[float] = field(default_factory=list)
    sampler: BaseSampler | None = None
    out: dict[int, tuple[Proposal, float]] = field(default_factory=dict)
    _asked: deque[Proposal] = field(default_factory=deque)
    _trying: int = 0
    _speed_factors_of: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _places: dict[int, str] = field(default_factory=dict)
    _lost: set[int] = field(default_factory=set)  # trials that can be no control
    _scale: float = 1.0  # of times now, over those that the study has

    def __post_init__(self) -> None:
        stored = self.store.trials()
        self._study = SearchStudy(
            self.model,
            self.request,
            stored,
            self.starts,
            self.store.known_failures(),
            prior=self.prior,
            sampler=self.sampler,
        )
        for trial in stored:  # whose is unknown if shared, but the first timed was the leader's
            is_own = self.request.spread == 1 or self.best is None
            self._take_in(trial, None if is_own else "")
        self._rescale(undisturbed_factor(self.speed_factors))
        self.control = self._usual_control()

    def _usual_control(self) -> TrialRecord | None:
        """Return the first own trial about as fast as the best of them, which is the luckiest."""
        not_own = self._places.keys() | self._lost
        timed = [t for t in self.trials if t.state == "timed" and t.number not in not_own]
        near = min(map(time_us, timed), default=0.0) / WORTH
        return next((trial for trial in timed if time_us(trial) <= near), None)

    def _take_in(self, trial: TrialRecord, place: str | None = None) -> None:
        self.trials.append(trial)
        is_next = takes_over(trial, self.speed_factors)
        if place is not None:
            self._places[trial.number] = place
        if trial.state == "timed":  # others took few samples
            if trial.speed_factor is not None:
                at = self.speed_factors if place is None else self._speed_factors_of[place]
                at.append(trial.speed_factor)
            if self.best is None or time_us(trial) < time_us(self.best):
                self.best = trial
        if place is None and (is_next or (self.control is None and trial is self.best)):
            self.control = trial

    def settled(self, factor: float) -> tuple[TrialRecord, ...]:
        """Return all trials, corrected by how many times longer the final benchmark took.

        Without a control each trial has its own scale and is not corrected.
        """
        if self.speed_factors and abs(log(factor)) > STEADY:
            self._rescale(factor)
        return tuple(self.trials)

    def _rescale(self, factor: float) -> None:
        """Correct all trials, here and in the store, for a machine `factor` times slower."""
        if factor == 1.0:
            return
        self.trials = [rescaled(trial, factor) for trial in self.trials]
        by_number = {trial.number: trial for trial in self.trials}
        self.best = self.best and by_number[self.best.number]
        self.control = self.control and by_number[self.control.number]
        for speed_factors in (self.speed_factors, *self._speed_factors_of.values()):
            speed_factors[:] = [speed_factor / factor for speed_factor in speed_factors]
        self._scale *= factor
        self.store.correct([trial for trial in self.trials if trial.measurement])

    def ahead(self, runner: Runner) -> Iterator[Proposal]:
        """Yield proposals, each prepared as far ahead as the runner can use."""
        while True:
            while len(self._asked) <= runner.ahead and self._has_budget():
                proposal = self._study.ask()
                if proposal is None:
                    break
                self._asked.append(proposal)
                runner.prepare(list(self.model.space.schedule(proposal.point).to_json()))
            if not self._asked:
                return
            self._trying = 1
            yield self._asked.popleft()
            self._trying = 0

    def _has_budget(self) -> bool:
        open_ = len(self._asked) + self._trying + len(self.out)
        return len(self.trials) + open_ < self.request.trials

    @property
    def study(self) -> Study:
        """The search as an Optuna study."""
        return self._study.study

    def run(
        self, runner: Runner, proposal: Proposal, before_kept: Callable[[], object] | None = None
    ) -> TrialRecord:
        """Try one point and store the trial, also if it failed.

        `before_kept` is called after the trial, before it has a number.
        """
        tried = self._candidate(self.next_number, proposal)
        trial = attempt(runner.trial, tried, self.model.space.problem.flops)
        if before_kept:
            before_kept()
            trial = replace(trial, number=self.next_number)
        self.store.add(trial)
        self._take_in(trial)
        if tried.control and self.control and trial.speed_factor is None and trial.state == "timed":
            self._lost |= {self.control.number, trial.number}  # whose scale is unknown
            self.control = self._usual_control()
        self._study.tell(proposal, rescaled(trial, 1 / self._scale))  # as those that it knows
        self._rescale(undisturbed_factor(self.speed_factors))
        return self.trials[-1]

    @property
    def next_number(self) -> int:
        """The number of the next trial."""
        return self.trials[-1].number + 1 if self.trials else 0

    def offer(self) -> RemoteTrial | None:
        """Return a candidate for another machine; None if nothing is left."""
        proposal = self._study.ask() if self._has_budget() else None
        if proposal is None:
            return None
        number = proposal.trial.number
        self.out[number] = proposal, self._scale
        return self._candidate(number, proposal)

    def take_in(self, helped: Helped) -> TrialRecord:
        """Learn from a stored trial of another machine.

        It never becomes the control, whose time this machine has to know.
        """
        trial, (proposal, scale) = helped.trial, self.out.pop(helped.number)
        if scale != self._scale:
            trial = rescaled(trial, self._scale / scale)
            self.store.correct([trial])
        self._take_in(trial, helped.place)
        self._study.tell(proposal, rescaled(trial, 1 / self._scale))
        return trial

    def take_back(self, number: int, runner: Runner) -> None:
        """Try a candidate of another machine on this one."""
        proposal, _ = self.out.pop(number)
        self._asked.append(proposal)
        runner.prepare(list(self.model.space.schedule(proposal.point).to_json()))

    def _candidate(self, number: int, proposal: Proposal) -> RemoteTrial:
        control: dict[str, Any] | None = None
        if self.control is not None:
            steps = list(self.control.schedule.to_json())
            control = {"steps": steps, "seconds": time_us(self.control) / 1e6}
        schedule, best_s = self.model.space.schedule(proposal.point), self._to_beat_s()
        return RemoteTrial(number, schedule, proposal.point, proposal.origin, best_s, control)

    def _to_beat_s(self) -> float | None:
        """Return seconds of the fastest trial at a usual speed factor.

        A time at an unusual one may be 5% too short, and later candidates would get few samples.
        """
        if self.best is None:
            return None
        here = median(self.speed_factors or [1.0])
        usual = {place: median(factors) for place, factors in self._speed_factors_of.items()}

        def is_steady(trial: TrialRecord) -> bool:
            expected = usual.get(self._places.get(trial.number, ""), here)
            return is_near(trial.speed_factor or expected, expected)

        timed = (trial for trial in self.trials if trial.state == "timed")
        return min(map(time_us, filter(is_steady, timed)), default=time_us(self.best)) / 1e6

    def ranking(self) -> list[TrialRecord]:
        """Return the trials that ran, fastest first."""
        return sorted((t for t in self.trials if t.measurement), key=time_us)
