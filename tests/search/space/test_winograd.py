"""Winograd transforms in a space: where it is offered, and what its points mean."""

from dataclasses import replace
from itertools import product
from random import Random

import pytest

from tests.search.targets import NARROW, WIDE
from tilewise.kernels.fast_algorithms import outputs_for
from tilewise.kernels.problem import Conv2d, parse_problem
from tilewise.kernels.schedule import Parallel, Winograd, check_legal, loop_nest
from tilewise.kernels.target import Target
from tilewise.search.space.algorithms import (
    ALGORITHM,
    LEAST_CHANNELS,
    LEAST_CHANNELS_OF_STRIDED,
    PAST_CACHES,
    WANTED,
)
from tilewise.search.space.space import Space

TEXT = "conv2d:n=2,h=30,w=17,ci=64,co=100,kh=3,kw=3,pad=1,dtype=f32"


def changed(**keys: object) -> Conv2d:
    problem = parse_problem(TEXT)
    assert isinstance(problem, Conv2d)
    return replace(problem, **keys)


def algorithms(problem: Conv2d) -> tuple[object, ...]:
    return Space(problem, WIDE).values(ALGORITHM)


def test_it_is_offered_where_it_can_be_applied() -> None:
    assert algorithms(changed()) == ("direct", "winograd2", "winograd4")
    assert algorithms(changed(dtype="f64", bias=True, epilogue="relu", pad=0)) != ()
    assert algorithms(changed(layout="nchw_fchw")) != ()
    for keys in (
        {"stride": 3},
        {"stride": 2, "ci": 8},
        {"stride": 2, "kh": 1},
        {"dilation": 2},
        {"groups": 2},
        {"kw": 2},
        {"kh": 1, "kw": 1},
        {"dtype": "bf16"},
        {"accuracy": "strict"},
    ):
        assert algorithms(changed(**keys)) == (), keys


@pytest.mark.parametrize("taps", [*LEAST_CHANNELS])
def test_a_filter_lying_or_standing_has_the_tiles_that_pay(taps: tuple[int, int]) -> None:
    names = tuple(f"winograd{output}" for output in LEAST_CHANNELS[taps])
    for kh, kw in (taps, taps[::-1]):
        assert algorithms(changed(kh=kh, kw=kw, ci=256)) == ("direct", *names)
        assert set(LEAST_CHANNELS[taps]) <= set(outputs_for((kh, kw)))


@pytest.mark.parametrize("taps", [*LEAST_CHANNELS_OF_STRIDED])
def test_strided_filters_have_tiles_of_their_own(taps: tuple[int, int]) -> None:
    names = tuple(f"winograd{output}" for output in LEAST_CHANNELS_OF_STRIDED[taps])
    kh, kw = taps
    assert algorithms(changed(kh=kh, kw=kw, stride=2)) == ("direct", *names)
    assert set(LEAST_CHANNELS_OF_STRIDED[taps]) <= set(outputs_for(taps, stride=2))


def test_shallow_sums_have_small_tiles_alone() -> None:
    """The direct method rounds so little there that large tiles are beyond what is allowed."""
    assert algorithms(changed(ci=4)) == ("direct", "winograd2")
    assert algorithms(changed(ci=64, kh=1)) == ("direct", "winograd4")
    assert algorithms(changed(ci=8, kh=7, kw=1)) == ()


@pytest.mark.full
@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("target", [WIDE, NARROW])
@pytest.mark.parametrize(
    ("kh", "kw", "layout"),
    [(3, 3, "nhwc_hwcf"), (3, 3, "nchw_fchw"), (5, 5, "nhwc_hwcf"), (7, 1, "nchw_fchw")],
)
def test_every_point_is_a_legal_schedule(
    target: Target, threads: int, kh: int, kw: int, layout: str
) -> None:
    problem, random = changed(layout=layout, kh=kh, kw=kw), Random(0)
    space = Space(problem, target.with_threads(threads))
    seen = set()
    for _ in range(400):
        point = space.draw(random)
        schedule = space.schedule(point)
        check_legal(problem, schedule)
        name = str(point[ALGORITHM])
        wanted = None if name == "direct" else int(name.removeprefix("winograd"))
        assert schedule.algorithm == (wanted and Winograd(wanted))
        assert len(loop_nest(problem, schedule).parts) <= threads
        seen.add(type(schedule.steps[0]))
    assert Winograd in seen


def test_direct_points_mean_what_they_mean_without_the_choice() -> None:
    strict, random = Space(changed(accuracy="strict"), WIDE), Random(0)
    space = Space(changed(), WIDE)
    for _ in range(100):
        point = strict.draw(random)
        assert ALGORITHM not in point
        known = point | {ALGORITHM: "direct", WANTED: 0}
        assert space.schedule(known) == strict.schedule(point)


def test_what_divides_images_and_lines_divides_tiles() -> None:
    space = Space(changed(), WIDE.with_threads(4))
    point = {p.name: p.values[0] for p in space.parameters} | {ALGORITHM: "winograd4"}
    divided = {
        choice: [s for s in space.schedule(point | {"parallel": choice}).steps
                 if isinstance(s, Parallel)]
        for choice in ("none", "oh=4", "n=2,oh=2", "oh=2,co=2", "co=4")
    }  # fmt: skip
    assert divided == {
        "none": [],
        "oh=4": [Parallel("t", 4)],
        "n=2,oh=2": [Parallel("t", 4)],
        "oh=2,co=2": [Parallel("t", 2), Parallel("co", 2)],
        "co=4": [Parallel("co", 4)],
    }


def test_a_result_beyond_l2_may_be_written_past_the_caches() -> None:
    far = {"h": 120, "w": 120, "co": 64}
    space = Space(changed(**far), WIDE)
    assert space.values(PAST_CACHES) == (False, True)
    point = {p.name: p.values[-1] for p in space.parameters}
    for algorithm, value in product(("winograd2", "winograd4"), (False, True)):
        schedule = space.schedule(point | {ALGORITHM: algorithm, PAST_CACHES: value})
        assert loop_nest(space.problem, schedule).store.is_nontemporal == value
    direct = space.schedule(point | {ALGORITHM: "direct"})
    assert not loop_nest(space.problem, direct).store.is_nontemporal


@pytest.mark.parametrize(
    "keys",
    [
        {"h": 30},
        {"co": 100},  # rows that are no whole lines
        {"layout": "nchw_fchw"},
        {"init": "accumulate"},
        {"kh": 1, "kw": 1},
    ],
)
def test_other_results_are_not(keys: dict[str, object]) -> None:
    space = Space(changed(**{"h": 120, "w": 60, "n": 1, "co": 64, **keys}), WIDE)
    assert space.values(PAST_CACHES) == ()
