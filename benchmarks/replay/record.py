"""Record a space: time many different schedules of each problem, and keep all samples.

    python -m benchmarks.replay.record [NAME ...] [--schedules 1600] [--seconds 300]

Most schedules are drawn at random over the space, so that they say what random search
would meet; then the prior's, and then one-parameter neighbours of the fastest, so that the
best of the space is really among them. Each is checked against the reference. The fastest
are timed again in interleaved rounds until all of the first few have been, so that the
best is not the luckiest sample. A file that exists is gone on with.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from kernels.problem import parse_problem
from kernels.target import detect
from kernels.toolchain import identity
from search.attempt import attempt
from search.errors import SearchError
from search.parameters import Point
from search.prior import prior_points
from search.process import CandidateFailureError
from search.protocol import Message
from search.recording import Recording
from search.runner import Runner
from search.space import Space
from search.store import MemoryStore
from search.transfer import starting_points

FOLDER = Path(__file__).parents[1] / "spaces"
PROBLEMS = {
    "large-f32": "matmul:m=1024,n=1024,k=1024,dtype=f32",
    "skinny-f32": "matmul:m=16,n=1024,k=1024,dtype=f32",
    "tiny-f32": "matmul:m=64,n=64,k=64,dtype=f32",
    "odd-f32": "matmul:m=333,n=511,k=257,dtype=f32",
    "square-i32": "matmul:m=512,n=512,k=512,dtype=i32",
    "square-bf16": "matmul:m=768,n=768,k=768,dtype=bf16",
    "conv3x3-f32": "conv2d:n=1,h=58,w=58,ci=64,co=64,kh=3,kw=3,dtype=f32",
    "conv1x1-f32": "conv2d:n=1,h=28,w=28,ci=512,co=128,kh=1,kw=1,dtype=f32",
}
UNSEEN = {
    "unseen-f32": "matmul:m=128,n=3072,k=768,dtype=f32",
    "unseen-skinny-f32": "matmul:m=12,n=2048,k=768,dtype=f32",
    "unseen-odd-f32": "matmul:m=200,n=517,k=391,dtype=f32",
    "unseen-bf16": "matmul:m=512,n=1024,k=640,dtype=bf16",
    "unseen-conv3x3-f32": "conv2d:n=1,h=30,w=30,ci=128,co=128,kh=3,kw=3,dtype=f32",
    "unseen-conv1x1-f32": "conv2d:n=1,h=14,w=14,ci=1024,co=256,kh=1,kw=1,dtype=f32",
}
"""Shapes that no weight was fitted to and no sampler was chosen on."""
RANDOM_SHARE = 0.65
PRIOR = 48
SLOW = 3.0  # times the best, from where a schedule gets only its first samples
PRUNED_AT = 1.25  # times what a runner is told to be the best
FIRST = 30  # the first so many are all timed again
GROUP, ROUNDS = 10, 11
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

    def __post_init__(self) -> None:
        self.space = Space(parse_problem((PROBLEMS | UNSEEN)[self.name]), detect())
        if self.path.exists():
            self.recording = Recording.load(self.path)
        else:
            self.recording = Recording(
                self.space.problem,
                self.space.target,
                {p.name: p.values for p in self.space.parameters},
                toolchain=identity(),
                condition={
                    "date": time.strftime("%Y-%m-%d"),
                    "cores": ",".join(map(str, sorted(os.sched_getaffinity(0)))),
                    "protocol": f"as a trial; stopped early above {SLOW} times the best; "
                    f"the best {FIRST} again in interleaved rounds of {GROUP}",
                },
            )
        self.known = {t.schedule.hash for t in self.recording.trials}
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
        for point in prior_points(self.space, PRIOR):
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

    def _near_problems(self) -> list[Point]:
        """What the fastest of the recorded problems say of an unseen one."""
        paths = [self.path.with_name(f"{name}.json.gz") for name in PROBLEMS]
        if self.name in PROBLEMS or not all(path.exists() for path in paths):
            return []
        return starting_points(self.space, MemoryStore(Recording.load(p).solved() for p in paths))

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
            for point, origin in self.points(most):
                if time.monotonic() - begin > seconds:
                    break
                self._trial(runner, point, origin)
                if len(self.recording.trials) % SAVE_EVERY == 0:
                    self.report()
            self._again(runner)
        self.report()

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
        schedule = self.space.schedule(point)
        self.known.add(schedule.hash)
        best_s = min((min(t.samples) for t in self.recording.trials if t.samples), default=None)
        number = len(self.recording.trials)
        limit_s = best_s * SLOW / PRUNED_AT if best_s else None
        steps = list(schedule.to_json())
        trial = attempt(lambda: _ask(runner, steps, limit_s), self.space, number, point, origin)
        self.recording.trials.append(trial)

    def _again(self, runner: Runner) -> None:
        """Interleaved rounds, until every one of the first has been in them."""
        while True:
            again = self.recording.again
            first = self.recording.by_time()[:FIRST]
            group = [t for t in first if t.schedule.hash not in again][:GROUP]
            if not group:
                return
            steps = [list(t.schedule.to_json()) for t in group]
            reply = runner.finals(steps, ROUNDS, False)
            for trial, one in zip(group, reply["finalists"], strict=True):
                again[trial.schedule.hash] = tuple(one["times"][0])


def _ask(runner: Runner, steps: list[Any], best_s: float | None) -> Message:
    """A trial; once more in a fresh child if the one that grew over many trials was full."""
    try:
        return runner.trial(steps, best_s)
    except CandidateFailureError as failure:
        if failure.kind != "memory":
            raise
        return runner.trial(steps, best_s)


def main() -> int:
    """Record the problems named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROBLEMS | UNSEEN))
    parser.add_argument("--schedules", type=int, default=1600)
    parser.add_argument("--seconds", type=float, default=300.0, help="for each problem")
    parser.add_argument("--random-share", type=float, default=RANDOM_SHARE)
    parser.add_argument("--into", type=Path, default=FOLDER)
    args = parser.parse_args()
    if unknown := set(args.names) - set(PROBLEMS | UNSEEN):
        known = ", ".join(PROBLEMS | UNSEEN)
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
