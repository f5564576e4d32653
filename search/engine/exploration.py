"""The trials of one search: proposed ahead, compiled while others are timed, kept, learnt from."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from optuna.samplers import BaseSampler
from optuna.study import Study

from search.engine.attempt import attempt
from search.engine.study import Proposal, SearchStudy
from search.model.analytical import Model
from search.records import TrialRecord, TuneRequest, time_us
from search.runner.interface import TrialRunner
from search.space.points import Point
from search.store import TrialStore
from search.timing.pace import WORTH, is_near, is_usual


def takes_over(trial: TrialRecord, paces: Sequence[float]) -> bool:
    """Whether a trial becomes the control: it was clearly faster, at a pace as usual as `paces`."""
    return trial.takes_over and is_usual(trial.pace or 1.0, paces)


@dataclass
class Exploration:
    """The state of one search; everything in it can be rebuilt from the store.

    Attributes:
        model: of the space that is searched.
        starts: points that near problems offer, best first.
        prior: the points that the model offers, where they are not those of `prior_points`.
        sampler: who proposes, instead of the sampler that the request names.
        trials: all so far, those that the store held included, by number.
        best: the fastest that was timed to the end.
        control: what is timed beside each trial, to tell the machine's pace.
        paces: of the trials that were timed to the end.
    """

    model: Model
    request: TuneRequest
    store: TrialStore
    starts: list[Point]
    prior: Sequence[Point] | None = None
    trials: list[TrialRecord] = field(default_factory=list)
    best: TrialRecord | None = None
    control: TrialRecord | None = None
    paces: list[float] = field(default_factory=list)
    sampler: BaseSampler | None = None
    _asked: deque[Proposal] = field(default_factory=deque)

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
        for trial in stored:
            self._take_in(trial)
        if self.best is not None:  # the luckiest is no control, but the first that is about as fast
            near = time_us(self.best) / WORTH
            timed = (trial for trial in self.trials if trial.state == "timed")
            self.control = next(trial for trial in timed if time_us(trial) <= near)

    def _take_in(self, trial: TrialRecord) -> None:
        self.trials.append(trial)
        is_next = takes_over(trial, self.paces)
        if trial.pace is not None and trial.state == "timed":  # others took few samples
            self.paces.append(trial.pace)
        if trial.state == "timed" and time_us(trial) < (
            time_us(self.best) if self.best else float("inf")
        ):
            self.best = trial
        if is_next or (self.control is None and trial is self.best):
            self.control = trial

    def ahead(self, runner: TrialRunner) -> Iterator[Proposal]:
        """The proposals, each of them prepared as many trials ahead as the runner can use."""
        while True:
            while len(self._asked) <= runner.ahead and self._has_budget():
                proposal = self._study.ask()
                if proposal is None:
                    break
                self._asked.append(proposal)
                runner.prepare(list(self.model.space.schedule(proposal.point).to_json()))
            if not self._asked:
                return
            yield self._asked.popleft()

    def _has_budget(self) -> bool:
        return len(self.trials) + len(self._asked) < self.request.trials

    @property
    def study(self) -> Study:
        """The search as Optuna sees it."""
        return self._study.study

    def run(self, runner: TrialRunner, proposal: Proposal) -> TrialRecord:
        """Try one point and keep the trial, whatever came of it."""
        number = self.trials[-1].number + 1 if self.trials else 0
        best_s = self._to_beat_s()
        steps = list(self.model.space.schedule(proposal.point).to_json())
        control = None
        if self.control is not None:
            control = {
                "steps": list(self.control.schedule.to_json()),
                "seconds": time_us(self.control) / 1e6,
            }
        trial = attempt(
            lambda: runner.trial(steps, best_s, control),
            self.model.space,
            number,
            proposal.point,
            proposal.origin,
        )
        self.store.add(trial)
        self._take_in(trial)
        if control is not None and trial.pace is None and trial.state == "timed":
            self.control = None  # it does not run any more; the next to be the best replaces it
        self._study.tell(proposal, trial)
        return trial

    def _to_beat_s(self) -> float | None:
        """Seconds of the fastest that was timed at a usual pace of the machine.

        At an unusual one a time may be told 5% too short, and all that follow would be behind it,
        which is what gets few samples.
        """
        if self.best is None:
            return None
        usual = median(self.paces or [1.0])
        timed = (trial for trial in self.trials if trial.state == "timed")
        steady = (time_us(t) for t in timed if is_near(t.pace or usual, usual))
        return min(steady, default=time_us(self.best)) / 1e6

    def ranking(self) -> list[TrialRecord]:
        """The trials that ran, the fastest first."""
        return sorted((t for t in self.trials if t.measurement), key=time_us)
