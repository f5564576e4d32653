"""What is a tuned kernel worth inside IREE?

    python -m benchmarks.peers.iree_library SUITE.json... [--dtype f32] [--constant] [--trials N]

Of each problem IREE with the kernel beside our own call, IREE's default and its data tiling, all in
the same interleaved rounds: medians in microseconds. Problems that are not stored are searched for.
"""

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import geometric_mean

from tilewise.backends.choose import Backend, open_backend
from tilewise.bench import read_suite
from tilewise.errors import MissingError
from tilewise.kernels.problem import Conv2d, Matmul, Problem
from tilewise.search.libraries.gain import Gain, measured
from tilewise.search.records import TuneRequest

HEAD = ("problem", "kernel", "default", "data tiling", "x IREE", "x own call")


def main() -> None:
    """Print the table of each suite."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="+", metavar="SUITE.json")
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--constant", action="store_true", help="with constant weights")
    parser.add_argument("--trials", type=int, default=24, metavar="N")
    parser.add_argument("--target", default="host", metavar="T")
    options = parser.parse_args()
    with open_backend(None, None) as backend:
        for path in options.suites:
            suite = read_suite(Path(path))
            problems = [
                _with_weights(entry.problem, constant=options.constant)
                for entry in suite.entries
                if entry.problem.element.name == options.dtype
            ]
            print(suite.name)
            gains = [_gain(backend, one, options.target, options.trials) for one in problems]
            _print(problems, gains)


def _with_weights(problem: Problem, *, constant: bool) -> Problem:
    if constant and isinstance(problem, Matmul | Conv2d):
        return replace(problem, weights="constant")
    return problem


def _gain(backend: Backend, problem: Problem, target: str, trials: int) -> Gain:
    given = (problem.canonical, target)
    try:
        found = backend.show(*given)
    except MissingError:
        tune = partial(backend.tune, *given, TuneRequest(trials))
        found = tune(lambda _trial: None)
    return measured(problem, found["best"]["steps"], found["target"])


def _print(problems: list[Problem], gains: list[Gain]) -> None:
    rows = []
    for problem, gain in zip(problems, gains, strict=True):
        if gain.failure or gain.library_us is None or gain.own_us is None:
            rows.append((problem.canonical, gain.failure, "", "", "", ""))
            continue
        alone = gain.alone_us or {}
        rows.append(
            (
                problem.canonical,
                f"{gain.library_us:.1f}",
                *(f"{alone[mode]:.1f}" if mode in alone else "" for mode in HEAD[2:4]),
                f"{gain.ratio:.2f}" if gain.ratio else "",
                f"{gain.own_us / gain.library_us:.3f}",
            )
        )
    width = max(len(row[0]) for row in (HEAD, *rows))
    for name, *figures in (HEAD, *rows):
        print(name.ljust(width), *(figure.rjust(11) for figure in figures))
    served = [gain for gain in gains if gain.ratio and gain.library_us and gain.own_us]
    better = geometric_mean([gain.ratio or 0 for gain in served])
    own = geometric_mean([(gain.own_us or 0) / (gain.library_us or 1) for gain in served])
    least = min(gain.ratio or 0 for gain in served)
    print(
        f"\ngeometric means: {better:.2f} x IREE, {own:.3f} x own call; least {least:.2f} x IREE\n"
    )


if __name__ == "__main__":
    main()
