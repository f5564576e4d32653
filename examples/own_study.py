"""Tilewise's space and its sampler in an Optuna study of your own.

    python examples/own_study.py

The study asks `SurrogateSampler` for schedules of a small matmul, compiles each, and times it by
this file's own means. `LocalSampler`, `GridSampler` and any sampler of Optuna's take its place:
`Distinct(optuna.samplers.TPESampler(), space)` proposes legal schedules, each once.
"""

import time
from statistics import median

import optuna

from tilewise.kernels.native import lower
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import detect
from tilewise.search.samplers.base import suggest_point
from tilewise.search.samplers.surrogate import SurrogateSampler
from tilewise.search.space.space import Space

TRIALS, RUNS = 24, 9

problem = parse_problem("matmul:m=256,n=256,k=256,dtype=f32")
space = Space(problem, detect())
operands = make_operands(problem, seed=0)


def time_us(trial: optuna.Trial) -> float:
    """Median time of the schedule that the study proposes."""
    schedule = space.schedule(suggest_point(trial, space))
    call = lower(problem, schedule, space.target).bind(operands)
    taken = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    trial.set_user_attr("schedule", str(schedule))
    return 1e6 * median(taken)


def main() -> None:
    """Search, and print the fastest schedule."""
    study = optuna.create_study(sampler=SurrogateSampler(space, trials=TRIALS))
    study.optimize(time_us, n_trials=TRIALS)
    best = study.best_trial
    print(best.user_attrs["schedule"])
    print(f"{best.value:.1f} us, {problem.flops / best.value / 1e3:.1f} GFLOP/s")


if __name__ == "__main__":
    main()
