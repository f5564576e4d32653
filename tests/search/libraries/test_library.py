"""Libraries hold the kernels that make IREE faster, and say what they leave out."""

from dataclasses import replace
from typing import Any

import pytest

from tests.search.peers.test_peers import require
from tilewise.kernels.dispatches.executable import LibraryEntry
from tilewise.kernels.errors import ProofError
from tilewise.kernels.problem import parse_problem, parse_range
from tilewise.kernels.range_schedule import RangeSchedule
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import resolve
from tilewise.search.libraries import library
from tilewise.search.libraries.gain import Gain, measured
from tilewise.search.libraries.library import KernelRow, proven_library
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.space.space import Space

SMALL, OTHER = "matmul:m=37,n=65,k=29,dtype=f32", "matmul:m=37,n=65,k=30,dtype=f32"
FAST = Gain(True, 1e-6, 1e-3, 10.0, 9.0, {"default": 20.0, "data tiling": 15.0})


def wanted(text: str) -> LibraryEntry:
    problem = parse_problem(text)
    space = Space(problem, resolve("host"))
    (point,) = prior_points(AnalyticalModel.shipped(space), 1)
    return LibraryEntry(problem, space.schedule(point))


def made(monkeypatch: pytest.MonkeyPatch, gains: dict[str, Gain]) -> library.ProvenLibrary:
    """The library of problems with these gains, as if they had been measured."""

    def told(problem: Any, _steps: Any, _target: str, _budget_s: float) -> Gain:
        return gains[problem.canonical]

    monkeypatch.setattr(library, "measured", told)
    return proven_library([wanted(text) for text in gains], resolve("host").canonical)


@pytest.mark.full
def test_a_kernel_is_measured_inside_iree() -> None:
    require("iree+tilewise")
    one = wanted(SMALL)
    gain = measured(one.problem, one.schedule.to_json(), resolve("host").canonical, budget_s=0.05)
    assert gain.matched
    assert gain.max_error is not None
    assert gain.tolerance is not None
    assert gain.max_error <= gain.tolerance
    assert gain.alone_us is not None
    assert set(gain.alone_us) <= {"default", "data tiling"}
    assert gain.ratio == pytest.approx(min(gain.alone_us.values()) / (gain.library_us or 0))


@pytest.mark.full
def test_a_range_is_compared_and_timed_at_several_sizes() -> None:
    require("iree+tilewise")
    problems = parse_range("matmul:m=8..64:8,n=65,k=29,dtype=f32,weights=constant")
    schedule = wanted("matmul:m=64,n=65,k=29,dtype=f32,weights=constant").schedule
    assert isinstance(schedule, Schedule)
    whole = RangeSchedule(problems, (schedule,), (0,) * len(problems.sizes))
    entry = LibraryEntry(problems.smallest, whole)
    gain = library.judged(entry, (), resolve("host").canonical, 0.02).gain
    assert gain.matched and not gain.failure
    assert gain.max_error is not None and gain.tolerance is not None
    assert gain.max_error <= gain.tolerance
    assert set(gain.alone_us or {}) == {"default", "data tiling"} and gain.library_us


def test_what_iree_does_not_find_is_not_served() -> None:
    gain = Gain(matched=False, failure="no pattern of the library matched")
    assert not gain.is_served
    small = parse_problem(SMALL)
    assert KernelRow(small, gain, small).reason == "no pattern of the library matched"
    assert not replace(FAST, matched=False).is_served


def test_where_iree_alone_is_faster_the_kernel_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = replace(FAST, library_us=15.1)
    found = made(monkeypatch, {SMALL: FAST, OTHER: slow})
    assert [row.to_json()["served"] for row in found.rows] == [True, False]
    assert f"// Left out: {OTHER}: IREE alone is faster: 15.0 us (data tiling), 15.1 us" in (
        found.text
    )
    assert "k30" not in found.text


def test_a_library_of_nothing_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProofError, match=r"m=37.*it was wrong"):
        made(monkeypatch, {SMALL: replace(FAST, failure="it was wrong")})
