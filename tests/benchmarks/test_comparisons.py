"""Comparisons of tuners, of versions, and of warm with cold searches."""

import subprocess
from pathlib import Path

import pytest

from benchmarks.kernels import points
from benchmarks.measuring.verdicts import drawn, timed
from benchmarks.measuring.versions import HERE, checkout, interval_of
from benchmarks.peers.peer_tuners import Run, plain_optuna, table, tilewise, time_again
from benchmarks.replay.problems import UNSEEN, relatives
from benchmarks.searching.warm_start import compare
from tilewise.kernels.fast_algorithms import POINTS
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import detect
from tilewise.search.records import Solved
from tilewise.search.space.space import Space
from tilewise.search.transfer.nearness import distance
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


def test_rounds_of_all_pairs_make_the_interval() -> None:
    low, high = interval_of([[0.99, 1.0, 1.01] * 4, [1.0, 1.02, 0.98] * 4])
    assert 0.98 <= low <= 1.0 <= high <= 1.02


def test_a_folder_is_used_as_it_is(tmp_path: Path) -> None:
    with checkout(str(tmp_path)) as folder:
        assert folder == tmp_path.resolve()


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


def test_the_points_that_are_used_were_among_those_tried() -> None:
    for (output, taps), used in POINTS.items():
        tried = list(points.sets(output, taps))
        assert used in tried
        assert all(len(set(one)) == output + taps - 2 for one in tried)


@pytest.mark.parametrize("text", UNSEEN.values())
def test_relatives_serve_the_problem_and_are_another(text):
    problem = parse_problem(text)
    space = Space(problem, detect())
    for near in relatives(problem).values():
        solved = Solved(near, detect().canonical, ())
        assert 0 < distance(space, solved) <= 2.5
        assert near.flops != problem.flops


@pytest.mark.full
def test_cold_and_warm_searches_are_compared_by_what_they_found_together():
    problem = parse_problem("matmul:m=24,n=40,k=16,dtype=f32")
    row = compare(problem, seeds=1, trials=5, costs=None)
    best, close, wide = (int(word) for word in row.among.split(" of "))
    assert 1 <= best <= close <= wide <= 10
    assert min(row.cold + row.warm) <= 5
    assert all(1 <= count <= 6 for count in row.cold + row.warm)
