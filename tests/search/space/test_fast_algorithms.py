"""Winograd transforms and Strassen's method in a space: where they are offered, what they mean."""

from dataclasses import replace
from itertools import product
from random import Random

import pytest

from tests.cases import some
from tests.search.targets import NARROW, WIDE
from tilewise.kernels.fast_algorithms import outputs_for
from tilewise.kernels.problem import Conv2d, Problem, parse_problem
from tilewise.kernels.schedule import Parallel, Prefetch, Strassen, Winograd, check_legal, loop_nest
from tilewise.kernels.target import Target
from tilewise.search.space import algorithms as offers
from tilewise.search.space.algorithms import ALGORITHM, WANTED, algorithm_of, nearest_algorithm
from tilewise.search.space.space import Space

TEXT = "conv2d:n=2,h=30,w=17,ci=64,co=100,kh=3,kw=3,pad=1,dtype=f32"
LARGE = "matmul:m=512,n=4096,k=4096,dtype=f32,weights=constant"
VARIABLE = "matmul:m=2048,n=2048,k=2048,dtype=f32"
PIXELS = "conv2d:n=1,h=14,w=14,ci=1024,co=512,kh=1,kw=1,dtype=f32,weights=constant"
ROWS, COLS, DEPTH = offers.LEAST[2]
LEAST, STRIDED = offers.LEAST_CHANNELS, offers.LEAST_CHANNELS_OF_STRIDED
BOTH, ONE = ("direct", "strassen1", "strassen2"), ("direct", "strassen1")


def changed(**keys: object) -> Conv2d:
    return replace(parse_problem(TEXT), **keys)


def algorithms(problem: Problem | str) -> tuple[object, ...]:
    parsed = parse_problem(problem) if isinstance(problem, str) else problem
    return Space(parsed, WIDE).values(ALGORITHM)


@pytest.mark.parametrize(("text", "offered"), [
    (LARGE, BOTH), (VARIABLE, BOTH),
    ("matmul:m=64,n=512,k=512,dtype=f64,transpose_b,bias,weights=constant", ONE),
    (PIXELS, ONE),
    # A dim that has halves alone has one level.
    (f"matmul:m={ROWS},n={COLS + 2},k={DEPTH},dtype=f32,weights=constant", ONE),
    ("matmul:m=63,n=512,k=512,dtype=f32,weights=constant", ()),
    ("matmul:m=64,n=510,k=512,dtype=f32,weights=constant", ()),
    ("matmul:m=64,n=512,k=510,dtype=f32,weights=constant", ()),
    ("matmul:m=64,n=513,k=515,dtype=f32,weights=constant", ()),
    ("matmul:m=512,n=4096,k=4096,dtype=f32", ()),
    (f"{LARGE},accuracy=strict", ()), (LARGE.replace("f32", "bf16"), ()),
    (f"{PIXELS},stride=2", ()), (f"{PIXELS},layout=nchw_fchw", ()),
])  # fmt: skip
def test_strassens_method_is_offered_where_all_dims_are_long(text, offered) -> None:
    assert algorithms(text) == offered


def test_winograd_transforms_are_offered_where_they_can_be_applied() -> None:
    assert algorithms(TEXT) == ("direct", "winograd2", "winograd4")
    assert algorithms(changed(dtype="f64", bias=True, epilogue="relu", pad=0)) != ()
    assert algorithms(changed(layout="nchw_fchw")) != ()
    for keys in (
        {"stride": 3}, {"stride": 2, "ci": 8}, {"stride": 2, "kh": 1}, {"dilation": 2},
        {"groups": 2}, {"kw": 2}, {"kh": 1, "kw": 1}, {"dtype": "bf16"}, {"accuracy": "strict"},
    ):  # fmt: skip
        assert algorithms(changed(**keys)) == (), keys
    # Sums of few channels are rounded so little that large tiles are beyond what is allowed.
    assert algorithms(changed(ci=4)) == ("direct", "winograd2")
    assert algorithms(changed(ci=64, kh=1)) == ("direct", "winograd4")
    assert algorithms(changed(ci=8, kh=7, kw=1)) == ()


@pytest.mark.parametrize(
    ("taps", "stride"), [*((taps, 1) for taps in LEAST), *((taps, 2) for taps in STRIDED)]
)
def test_each_filter_has_the_tiles_that_pay(taps: tuple[int, int], stride: int) -> None:
    outputs = (LEAST if stride == 1 else STRIDED)[taps]
    for kh, kw in {taps, taps[::-1]} if stride == 1 else {taps}:
        found = algorithms(changed(kh=kh, kw=kw, stride=stride, ci=256 if stride == 1 else 64))
        assert found == ("direct", *(f"winograd{output}" for output in outputs))
        assert set(outputs) <= set(outputs_for((kh, kw), stride=stride))


@pytest.mark.parametrize(("problem", "target", "draws"), some([
    *product(map(parse_problem, (LARGE, VARIABLE)), (WIDE, NARROW), (60,)),
    *product([changed(kh=kh, kw=kw, layout=layout) for kh, kw, layout in
              ((3, 3, "nhwc_hwcf"), (3, 3, "nchw_fchw"), (5, 5, "nhwc_hwcf"),
               (7, 1, "nchw_fchw"))],
             (WIDE.with_threads(2), NARROW.with_threads(4)), (200,)),
], of=5))  # fmt: skip
def test_every_point_is_a_legal_schedule(problem: Problem, target: Target, draws: int) -> None:
    space, random = Space(problem, target), Random(5)
    seen = set()
    for _ in range(draws):
        point = space.draw(random) | {ALGORITHM: random.choice(space.values(ALGORITHM))}
        schedule = space.schedule(point)
        check_legal(problem, schedule)
        name, method = str(point[ALGORITHM]), schedule.algorithm
        kinds = {"direct": type(None), "strassen": Strassen, "winograd": Winograd}
        assert isinstance(method, kinds[name.rstrip("0123456789")])
        assert len(loop_nest(problem, schedule).parts) <= target.threads
        if isinstance(method, Strassen):
            assert algorithm_of(point) == {"strassen": method.size}
            assert (Prefetch("B") in schedule.steps) == point["prefetch"]
        seen.add(schedule.hash)
    assert len(seen) > draws / 4


def test_direct_points_mean_what_they_mean_without_the_choice() -> None:
    strict, random = Space(changed(accuracy="strict"), WIDE), Random(0)
    space = Space(changed(), WIDE)
    for _ in range(100):
        point = strict.draw(random)
        assert ALGORITHM not in point and algorithm_of(point) == {}
        known = point | {ALGORITHM: "direct", WANTED: 0}
        assert space.schedule(known) == strict.schedule(point)


def test_what_divides_images_lines_and_rows_divides_tiles() -> None:
    space = Space(changed(), WIDE.with_threads(4))
    point = {p.name: p.values[0] for p in space.parameters} | {ALGORITHM: "winograd4"}
    divided = {
        "none": [], "oh=4": [Parallel("t", 4)], "n=2,oh=2": [Parallel("t", 4)],
        "oh=2,co=2": [Parallel("t", 2), Parallel("co", 2)], "co=4": [Parallel("co", 4)],
    }  # fmt: skip
    for choice, expected in divided.items():
        steps = space.schedule(point | {"parallel": choice}).steps
        assert [step for step in steps if isinstance(step, Parallel)] == expected
    rows = Space(parse_problem(LARGE), WIDE.with_threads(2))
    base = rows.draw(Random(1)) | {ALGORITHM: "strassen1", WANTED: 0}
    found = [rows.schedule(base | {"parallel": value}) for value in rows.values("parallel")]
    assert {s.dim for one in found for s in one.steps if isinstance(s, Parallel)} == {"t", "n"}


def test_a_result_beyond_l2_may_be_written_past_the_caches() -> None:
    space = Space(changed(h=120, w=120, co=64), WIDE)
    assert space.values(offers.PAST_CACHES) == (False, True)
    point = {p.name: p.values[-1] for p in space.parameters}
    for algorithm, value in product(("winograd2", "winograd4"), (False, True)):
        schedule = space.schedule(point | {ALGORITHM: algorithm, offers.PAST_CACHES: value})
        assert loop_nest(space.problem, schedule).store.is_nontemporal == value
    direct = space.schedule(point | {ALGORITHM: "direct"})
    assert not loop_nest(space.problem, direct).store.is_nontemporal
    for keys in (
        {"h": 30}, {"co": 100}, {"layout": "nchw_fchw"}, {"init": "accumulate"}, {"kh": 1, "kw": 1},
    ):  # fmt: skip
        other = changed(**{"h": 120, "w": 60, "n": 1, "co": 64, **keys})
        assert Space(other, WIDE).values(offers.PAST_CACHES) == (), keys


def test_a_transferred_algorithm_stays_of_its_kind() -> None:
    filtered = ("direct", "winograd2", "winograd4")
    assert nearest_algorithm(BOTH, "strassen2") == "strassen2"
    assert nearest_algorithm(ONE, "strassen2") == "strassen1"
    assert nearest_algorithm(BOTH, "winograd4") == "direct"
    assert nearest_algorithm(filtered, "strassen1") == "direct"
    assert nearest_algorithm(filtered, "winograd3") == "winograd4"
