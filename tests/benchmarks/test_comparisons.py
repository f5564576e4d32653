"""Comparisons of tuners and of versions."""

import subprocess

import pytest

from benchmarks.measuring.verdicts import drawn, timed
from benchmarks.measuring.versions import HERE, checkout
from benchmarks.peers.peer_tuners import Run, plain_optuna, table, tilewise, time_again
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import detect
from tilewise.search.verdicts import Verdict

PROBLEM = parse_problem("matmul:m=64,n=64,k=64,dtype=f32")


def test_seconds_to_a_speed_are_those_of_the_first_that_reached_it() -> None:
    run = Run("ours", gflops=100.0, trials=9)
    for seconds, speed in ((1.0, 50.0), (2.0, 40.0), (3.0, 91.0), (4.0, 100.0)):
        run.saw(speed, seconds)
    assert run.points == [(1.0, 50.0), (3.0, 91.0), (4.0, 100.0)]
    assert [run.seconds_to(speed) for speed in (50.0, 51.0, 100.0, 101.0)] == [1.0, 3.0, 4.0, None]
    slow = Run("slow", points=[(9.0, 80.0)], gflops=80.0)
    printed = table(PROBLEM, [run, slow, Run("TVM", absent="none")]).splitlines()[2:]
    assert [" ".join(line.split()) for line in printed] == [
        "ours 100.0 1.00 3.0 s 3.0 s 4.0 s 4.0 s 9 0",
        "slow 80.0 0.80 9.0 s - - - 0 0",
        "TVM absent: none",
    ]


@pytest.mark.parametrize("tuner", [tilewise, pytest.param(plain_optuna, marks=pytest.mark.full)])
def test_tuners_improve_until_the_time_is_up(tuner) -> None:
    run = tuner(PROBLEM, detect(), 0.2, 0)
    time_again(PROBLEM, detect(), 0, [run, Run("TVM")])
    assert run.trials >= 1 and run.gflops > 0
    speeds = [speed for _, speed in run.points]
    assert speeds == sorted(speeds) and speeds
    assert all(0 < at <= run.elapsed_s for at, _ in run.points)


def test_a_revision_is_checked_out_and_removed() -> None:
    git = ["git", "-C", str(HERE)]
    try:
        head = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs a clone of the repository")
    with checkout(head) as folder:
        assert (folder / "kernels" / "__init__.py").is_file()
    assert not folder.exists()
    assert str(folder) not in subprocess.check_output([*git, "worktree", "list"], text=True)


@pytest.mark.full
def test_a_planted_delay_is_found() -> None:
    (problem,) = drawn(1, seed=3)
    assert timed(problem, 0.3, tolerance=0.03).verdict(0.03) is Verdict.SLOWER
