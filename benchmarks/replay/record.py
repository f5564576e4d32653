"""Record a space: time many different schedules of each problem, and keep all samples.

    python -m benchmarks.replay.record [NAME ...] [--schedules 1600] [--seconds 300] [--into DIR]

Most schedules are drawn at random over the space, so that they say what random search
would meet; then the prior's, and then one-parameter neighbours of the fastest, so that the
best of the space is really among them. Each is checked against the reference, and timed beside
the fastest so far (`tilewise.search.timing.speed_factor`). The fastest are timed again in
interleaved rounds until all of the first few have been, and the best of those once more, so that
the best is not the luckiest sample. A file that exists is gone on with.
"""

import argparse
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from math import exp, log
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from benchmarks.places import SPACES
from benchmarks.replay.problems import ALL, PROBLEMS, RELATIVES, UNSEEN
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.system.toolchain import identity
from tilewise.kernels.target import detect
from tilewise.search.engine.exploration import attempt, takes_over
from tilewise.search.errors import SearchError
from tilewise.search.final_benchmark.rounds import rounds_of
from tilewise.search.helpers import RemoteTrial
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.recording import Recording
from tilewise.search.records import TrialRecord
from tilewise.search.runner.protocol import CandidateFailureError, Message, TrialReply
from tilewise.search.runner.runner import Runner
from tilewise.search.space.points import Point
from tilewise.search.space.space import Space
from tilewise.search.transfer.calibration import calibrate
from tilewise.search.transfer.nearness import distance
from tilewise.search.transfer.starting_points import adapt

RANDOM_SHARE = 0.65
PRIOR = 48
ADAPTED = 16  # of each near problem
SLOW = 3.0  # times the best, from where a schedule gets only its first samples
PRUNED_AT = 1.25  # times what a runner is told to be the best
FIRST = 30  # the first so many are all timed again
GROUP, ROUNDS, BEST_ROUNDS, PLACEMENTS = 10, 7, 21, 3
ANCHORS, ANCHORS_FROM, ANCHORS_EVERY = 5, 100, 25  # by rank: fast, and not chosen for it
PARENTS = 8  # the neighbours of so many of the best are tried at a time
SAVE_EVERY = 100


@dataclass
class Recorder:
    """Records one problem into one file."""

    name: str
    path: Path
    seed: int = 0
    random_share: float = RANDOM_SHARE
    recording: Recording = field(init=False)
    known: set[str] = field(default_factory=set)
    control: TrialRecord | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.space = Space(parse_problem(ALL[self.name]), detect())
        if self.path.exists():
            self.recording = Recording.load(self.path)
            if self.recording.target.canonical != self.space.target.canonical:
                raise SearchError(
                    f"{self.path} is of {self.recording.target.canonical}; record this "
                    f"{self.space.target.canonical} into another folder, with --into"
                )
        else:
            self.recording = Recording(
                self.space.problem,
                self.space.target,
                {p.name: p.values for p in self.space.parameters},
                toolchain=identity(),
                condition={
                    "date": time.strftime("%Y-%m-%d"),
                    "cores": ",".join(map(str, sorted(os.sched_getaffinity(0)))),
                    "protocol": f"as a trial beside a control; stopped early above {SLOW} times "
                    f"the best; the best {FIRST} again in interleaved rounds of {GROUP} with "
                    f"{ANCHORS} others, "
                    f"the best {GROUP} in more",
                },
            )
        self.known = {t.schedule.hash for t in self.recording.trials}
        self.control = next(iter(self.recording.by_time()), None)
        self.random = Random(f"{self.name} {self.seed} {len(self.known)}")

    def points(self, most: int) -> Iterator[tuple[Point, str]]:
        """Points of schedules that are not known yet, each with how it was chosen."""
        share = int(most * self.random_share)
        drawn = sum(t.origin == "random" for t in self.recording.trials)
        for point in self._random_points():
            if drawn >= share:
                break
            drawn += 1
            yield point, "random"
        for point in prior_points(AnalyticalModel.shipped(self.space), PRIOR):
            if len(self.recording.trials) < most and self._is_new(point):
                yield point, "prior"
        for point in self._near_problems():
            if self._is_new(point):
                yield point, "transfer"
        while len(self.recording.trials) < most:
            found = self._near_points()
            if not found:
                return
            for point in found:
                if len(self.recording.trials) < most and self._is_new(point):
                    yield point, "near"

    def _near_problems(self) -> Iterator[Point]:
        """What recorded problems that are near say of an unseen one.

        Their fastest points, adapted, and what the model proposes with the costs they speak for.
        """
        paths = [self.path.with_name(f"{name}.json.gz") for name in PROBLEMS | RELATIVES]
        recorded = [Recording.load(p) for p in paths if p.exists() and self.name in UNSEEN]
        searches = [recording.solved() for recording in recorded]
        for solved in searches:
            if distance(self.space, solved) is None:
                continue
            former = Space(solved.problem, self.space.target)
            for params, _ in solved.points[:ADAPTED]:
                point = adapt(self.space, former, params)
                if point is not None:
                    yield point
        related = [s for s in searches if s.problem.op == self.space.problem.op]
        if related:
            costs = calibrate(AnalyticalModel.shipped(self.space), related)
            yield from prior_points(AnalyticalModel(self.space, costs), PRIOR)

    def _random_points(self) -> Iterator[Point]:
        for _ in range(100_000):
            point = {p.name: self.random.choice(p.values) for p in self.space.parameters}
            if self._is_new(point):
                yield point

    def _is_new(self, point: Point) -> bool:
        schedule = self.space.schedule(point)
        return schedule.hash not in self.known and self.space.why_illegal(schedule) is None

    def _near_points(self) -> list[Point]:
        """One-parameter changes of the best whose neighbourhood is not exhausted."""
        found: list[Point] = []
        for parents, trial in enumerate(self.recording.by_time()):
            for parameter in self.space.parameters:
                for value in parameter.values:
                    point = trial.params | {parameter.name: value}
                    if self._is_new(point):
                        found.append(point)
            if parents >= PARENTS and found:
                break
        self.random.shuffle(found)
        # Soon enough again with what was learnt meanwhile.
        return found[:SAVE_EVERY]

    def run(self, most: int, seconds: float) -> None:
        """Time schedules until there are `most`, or the time is over; then the best again."""
        begin = time.monotonic()
        with Runner(self.space.problem, self.space.target.canonical, self.seed) as runner:
            for point, origin in self._prepared(runner, self.points(most)):
                if time.monotonic() - begin > seconds:
                    break
                self._trial(runner, point, origin)
                if len(self.recording.trials) % SAVE_EVERY == 0:
                    self.report()
            self.report()
            self._again(runner)
        self.report()

    def _prepared(
        self, runner: Runner, points: Iterator[tuple[Point, str]]
    ) -> Iterator[tuple[Point, str]]:
        """The points, each compiled while those before it are timed."""
        waiting: deque[tuple[Point, str]] = deque()
        for point, origin in points:
            schedule = self.space.schedule(point)
            self.known.add(schedule.hash)
            runner.prepare(list(schedule.to_json()))
            waiting.append((point, origin))
            if len(waiting) > runner.ahead:
                yield waiting.popleft()
        yield from waiting

    def report(self) -> None:
        """Save, and say how far it is."""
        self.recording.save(self.path)
        trials = self.recording.trials
        best = self.recording.by_time()[0]
        speed = self.space.problem.flops / self.recording.time_us(best) / 1e3
        failed = sum(t.state == "failed" for t in trials)
        print(
            f"{self.name}: {len(trials)} schedules, {failed} failed, best {speed:.1f} GFLOP/s "
            f"by {best.origin}",
            file=sys.stderr,
        )

    def _trial(self, runner: Runner, point: Point, origin: str) -> None:
        limit_s, control = None, None
        if self.control is not None:
            control_s = self.recording.time_us(self.control) / 1e6
            limit_s = control_s * SLOW / PRUNED_AT
            control = {"steps": list(self.control.schedule.to_json()), "seconds": control_s}
        number, schedule = len(self.recording.trials), self.space.schedule(point)
        tried = RemoteTrial(number, schedule, point, origin, limit_s, control)
        trial = attempt(partial(_ask, runner), tried, self.space.problem.flops)
        speed_factors = [
            t.speed_factor for t in self.recording.trials if t.speed_factor and t.state == "timed"
        ]
        is_next = takes_over(trial, speed_factors)
        self.recording.trials.append(trial)
        if is_next or (self.control is None and trial.state == "timed"):
            self.control = trial

    def _again(self, runner: Runner) -> None:
        """Interleaved rounds, until each of the first has been in them; then more of the best."""
        anchors = self._anchors()
        while anchors:
            first = self.recording.by_time()[:FIRST]
            group = [t for t in first if t.schedule.hash not in self.recording.again][:GROUP]
            if not group:
                break
            self._in_rounds(runner, group, anchors, ROUNDS)
        if anchors:
            self._in_rounds(runner, self.recording.by_time()[:GROUP], anchors, BEST_ROUNDS)

    def _anchors(self) -> list[TrialRecord]:
        """Trials whose times nobody chose, to compare rounds with: those of the first are lucky."""
        timed = [t for t in self.recording.by_time() if t.state == "timed"]
        timed = [t for t in timed if t.schedule.hash not in self.recording.again]
        first = min(ANCHORS_FROM, len(timed) // 2)
        every = max(1, min(ANCHORS_EVERY, (len(timed) - first) // ANCHORS))
        return timed[first::every][:ANCHORS]

    def _in_rounds(
        self, runner: Runner, group: list[TrialRecord], anchors: list[TrialRecord], rounds: int
    ) -> None:
        """Time a group again; told at the level that the anchors' trials were at."""
        together = [*group, *anchors]
        steps = [list(t.schedule.to_json()) for t in together]
        timed = rounds_of(runner.time_finalists(steps, rounds, False, PLACEMENTS))
        usual = median(
            log(self.recording.time_us(trial) / 1e6) - standing
            for trial, standing in list(zip(together, timed.standings, strict=True))[len(group) :]
        )
        for trial, one in zip(group, timed.contenders, strict=False):
            self.recording.again[trial.schedule.hash] = tuple(
                seconds * exp(usual - timed.levels[at])
                for at, seconds in one.items()
                if at in timed.levels
            )


def _ask(
    runner: Runner, steps: list[Any], best_s: float | None, control: Message | None
) -> TrialReply:
    """A trial; once more in a fresh child if the one that grew over many trials was full."""
    try:
        return runner.trial(steps, best_s, control)
    except CandidateFailureError as failure:
        if failure.kind not in ("memory", "runtime"):
            raise
        return runner.trial(steps, best_s, control)


def main() -> int:
    """Record the problems named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ALL))
    parser.add_argument("--schedules", type=int, default=1600)
    parser.add_argument("--seconds", type=float, default=300.0, help="for each problem")
    parser.add_argument("--random-share", type=float, default=RANDOM_SHARE)
    parser.add_argument("--into", type=Path, default=SPACES)
    args = parser.parse_args()
    if unknown := set(args.names) - set(ALL):
        known = ", ".join(ALL)
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known are {known}")
    args.into.mkdir(parents=True, exist_ok=True)
    for name in args.names or PROBLEMS:
        try:
            path = args.into / f"{name}.json.gz"
            recorder = Recorder(name, path, random_share=args.random_share)
            recorder.run(args.schedules, args.seconds)
        except SearchError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
