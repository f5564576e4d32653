"""The comparison of two versions: verdicts from intervals, and how a version is found."""

import subprocess
from pathlib import Path

import pytest

from benchmarks.kernels import points
from benchmarks.measuring.verdicts import drawn, timed
from benchmarks.measuring.versions import HERE, checkout, interval_of
from tilewise.kernels.fast_algorithms import POINTS
from tilewise.search.verdicts import Verdict


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
