"""Tuners beside each other: seconds to a given speed, and the final speed.

    python -m benchmarks.peers.peer_tuners [--seconds 90] [--seed 0] [--out FILE]
                                     [--tvm-python PATH] [--tvm-seconds 270]

- tilewise: `tilewise.search.engine.tune` with its defaults.
- optuna: Optuna's TPE with its defaults on the same space, kernels, checks and timing, without
  the analytical prior and whatever else the search knows.
- metaschedule: TVM's, by the interpreter of an environment that has it; docs/tuners.md says
  which versions run. It makes its own kernels and times them itself. A batch of it takes a
  minute on one core, so it is given more seconds.

Every tuner and all of its children are on one core. A speed counts when it is told to the tuner;
`final` is timed again at the end: the schedules of the first two in the same interleaved
rounds, TVM's kernel by its own evaluator, in its own process.
Kernel Tuner is not here: its backends are GPUs' and compiled C functions, and it neither
builds nor checks kernels of a Python generator, so it could only replay times.
"""

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

import optuna

from benchmarks.memory_store import MemoryStore
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.target import detect
from tilewise.kernels.target.model import Target
from tilewise.search.engine.tune import tune
from tilewise.search.records import TrialRecord, TuneRequest
from tilewise.search.runner.protocol import CandidateFailureError
from tilewise.search.runner.runner import Runner
from tilewise.search.space.points import Point
from tilewise.search.space.space import Space

PROBLEMS = (
    "matmul:m=1024,n=1024,k=1024,dtype=f32",
    "conv2d:n=1,h=56,w=56,ci=64,co=64,kh=3,kw=3,pad=1,dtype=f32",
)
SHARES = (0.8, 0.9, 0.95, 0.98)
MANY_TRIALS = 10_000
FINAL_ROUNDS = 15
TVM_SCRIPT = Path(__file__).with_name("peer_tuners_tvm.py")
TVM_SLACK_S = 300.0  # to start, to end its last batch, and to time the best again


@dataclass
class Run:
    """One tuner on one problem.

    Attributes:
        points: (seconds, GFLOP/s) at each improvement.
        gflops: of the best, timed again at the end.
        steps: the best schedule, of the tuners that search ours.
        absent: why it did not run.
    """

    tuner: str
    points: list[tuple[float, float]] = field(default_factory=list)
    gflops: float = 0.0
    steps: list[object] = field(default_factory=list)
    trials: int = 0
    failed: int = 0
    elapsed_s: float = 0.0
    absent: str = ""

    def seconds_to(self, gflops: float) -> float | None:
        return next((s for s, speed in self.points if speed >= gflops), None)

    def saw(self, gflops: float, seconds: float) -> None:
        if not self.points or gflops > self.points[-1][1]:
            self.points.append((seconds, gflops))


def tilewise(problem: Problem, target: Target, seconds: float, seed: int) -> Run:
    run, begin = Run("tilewise"), time.monotonic()

    def on_trial(trial: TrialRecord, _best: TrialRecord | None) -> None:
        if trial.measurement is not None:
            run.saw(trial.measurement.gflops, time.monotonic() - begin)

    request = TuneRequest(trials=MANY_TRIALS, seconds=seconds, seed=seed)
    found = tune(problem, target, request, MemoryStore(), on_trial=on_trial)
    run.elapsed_s = time.monotonic() - begin
    run.trials, run.failed = len(found.trials), found.count("failed")
    run.steps = list(found.best.schedule.to_json()) if found.best else []
    return run


def plain_optuna(problem: Problem, target: Target, seconds: float, seed: int) -> Run:
    """Categorical parameters, default TPE, and no more than that."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    space, run, begin = Space(problem, target), Run("optuna"), time.monotonic()
    best_s = math.inf
    with Runner(problem, target.canonical, seed) as runner:
        while time.monotonic() - begin < seconds:
            trial = study.ask()
            point: Point = {
                p.name: p.values[trial.suggest_categorical(p.name, range(len(p.values)))]
                for p in space.parameters
            }
            schedule = space.schedule(point)
            run.trials += 1
            try:
                if (reason := space.why_illegal(schedule)) is not None:
                    raise CandidateFailureError("constraint", reason)
                # No best is told, so that no candidate is stopped early: a plain objective.
                spent_s = median(runner.trial(list(schedule.to_json()), None).times)
            except CandidateFailureError:
                run.failed += 1
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
                continue
            study.tell(trial, spent_s)
            run.saw(problem.flops / spent_s / 1e9, time.monotonic() - begin)
            if spent_s < best_s:
                best_s, run.steps = spent_s, list(schedule.to_json())
    run.elapsed_s = time.monotonic() - begin
    return run


def time_again(problem: Problem, target: Target, seed: int, runs: Sequence[Run]) -> None:
    """Time the schedules that were found in the same interleaved rounds."""
    found = [run for run in runs if run.steps]
    with Runner(problem, target.canonical, seed) as runner:
        reply = runner.time_finalists([run.steps for run in found], FINAL_ROUNDS, False)
    for run, one in zip(found, reply.finalists, strict=True):
        run.gflops = problem.flops / median(one.times[0]) / 1e9


def metaschedule(
    python: str | None, problem: Problem, target: Target, seconds: float, seed: int
) -> Run:
    run = Run("metaschedule")
    if python is None:
        run.absent = "give --tvm-python, the interpreter of an environment with TVM"
        return run
    command = [python, str(TVM_SCRIPT), json.dumps(problem.to_json()), "--seconds", str(seconds)]
    command += ["--processor", target.cpu, "--seed", str(seed)]
    one_thread = {"TVM_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=seconds + TVM_SLACK_S,
            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | one_thread,
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        run.absent = (error.stderr.strip().splitlines() or [f"exit code {error.returncode}"])[-1]
        return run
    except (OSError, subprocess.TimeoutExpired) as error:
        run.absent = str(error)
        return run
    lines = done.stdout.strip().splitlines()
    if not lines:
        run.absent = "it told nothing"
        return run
    told = json.loads(lines[-1])
    run.tuner = told["version"]
    for at, spent_s in told["points"]:
        run.saw(problem.flops / spent_s / 1e9, at)
    run.gflops = problem.flops / told["final_s"] / 1e9
    run.trials, run.failed, run.elapsed_s = told["trials"], told["failed"], told["elapsed_s"]
    return run


def table(problem: Problem, runs: list[Run]) -> str:
    """Seconds until a tuner had seen a share of the best final speed of all."""
    most = max(run.gflops for run in runs)
    heads = "".join(f"{f'to {share:.0%}':>9}" for share in SHARES)
    lines = [
        f"{problem}",
        f"{'tuner':<22}{'final':>9}{'share':>7}{heads}{'trials':>8}{'failed':>8}",
    ]
    for run in runs:
        if run.absent:
            lines.append(f"{run.tuner:<22}absent: {run.absent}")
            continue
        reached = [run.seconds_to(share * most) for share in SHARES]
        cells = "".join(f"{'-' if s is None else f'{s:.1f} s':>9}" for s in reached)
        lines.append(
            f"{run.tuner:<22}{run.gflops:>9.1f}{run.gflops / most:>7.2f}{cells}"
            f"{run.trials:>8}{run.failed:>8}"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=90.0, help="of each search; default: 90")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--core", type=int, help="default: the first that this process may use")
    parser.add_argument("--tvm-python", metavar="PATH", help="interpreter that imports tvm")
    parser.add_argument(
        "--tvm-seconds", type=float, default=270.0, help="of TVM's search; default: 270"
    )
    parser.add_argument("--out", type=Path, help="also write every improvement as JSON")
    parser.add_argument("problems", nargs="*", default=PROBLEMS)
    options = parser.parse_args()
    core = min(os.sched_getaffinity(0)) if options.core is None else options.core
    os.sched_setaffinity(0, {core})
    target = detect()
    tuners: tuple[Callable[[Problem, Target, float, int], Run], ...] = (
        tilewise,
        plain_optuna,
        lambda problem, target, _seconds, seed: metaschedule(
            options.tvm_python, problem, target, options.tvm_seconds, seed
        ),
    )
    rows = []
    for text in options.problems:
        problem = parse_problem(text)
        runs = [tuner(problem, target, options.seconds, options.seed) for tuner in tuners]
        time_again(problem, target, options.seed, runs)
        print(table(problem, runs), flush=True)
        rows.append({"problem": problem.canonical, "runs": [asdict(run) for run in runs]})
    if options.out:
        head = {"target": target.canonical, "seconds": options.seconds, "seed": options.seed}
        head |= {"python": platform.python_version(), "optuna": optuna.__version__}
        options.out.write_text(json.dumps(head | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
