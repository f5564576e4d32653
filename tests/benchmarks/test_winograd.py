"""The accuracy limit of Winograd convolutions, and the tables that are printed."""

import pytest

from benchmarks.kernels import winograd
from tilewise.kernels.oracle.accuracy import KINDS
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule, Tile, Winograd
from tilewise.kernels.steps.winograd import why_not_winograd
from tilewise.kernels.target import detect

PROBLEM = parse_problem("conv2d:n=1,h=16,w=16,ci=32,co=64,kh=3,kw=3,pad=1,dtype=f32")


def test_the_limit_is_products_at_the_peak_and_transforms_at_the_speed_of_copies() -> None:
    direct = Schedule((Tile("n", 1), Pack("A"), Register(4, 32)))
    filtered = Schedule((Winograd(4), Pack("B"), Pack("A"), Register(4, 32)))
    assert winograd.least_seconds(PROBLEM, direct, 100.0, 1.0) == PROBLEM.flops / 100.0 / 1e9
    moved = 4 * 36 * (16 * 32 + 16 * 64 + 32 * 64)  # tiles, products, filter
    expected = PROBLEM.flops / 4 / 100.0 / 1e9 + 2 * moved / 50.0 / 1e9
    assert winograd.least_seconds(PROBLEM, filtered, 100.0, 50.0) == pytest.approx(expected)


def test_the_limit_is_of_the_tiles_that_allow_most() -> None:
    deep = parse_problem("conv2d:n=1,h=14,w=14,ci=64,co=64,kh=3,kw=3,pad=1,dtype=f32")
    for copying, output in ((1e9, 4), (0.1, 2)):  # large tiles save products, and are moved most
        of_each = {
            size: winograd.least_seconds(
                deep,
                Schedule((Winograd(size), Pack("B"), Pack("A"), Register(4, 32))),
                1.0,
                copying,
            )
            for size in (2, 4)
        }
        assert min(of_each, key=lambda size: of_each[size]) == output
        found = winograd.least_of_all(deep, detect(), 1.0, copying)
        assert found == pytest.approx(of_each[output])


def test_the_limit_of_a_product_of_matrices_is_that_of_its_quadrants() -> None:
    large = parse_problem("matmul:m=512,n=4096,k=4096,dtype=f32,weights=constant")
    found = winograd.least_of_all(large, detect(), 1.0, 1e9)
    assert found == pytest.approx(49 / 64 * large.flops / 1e9)
    small = parse_problem("matmul:m=5,n=7,k=9,dtype=f32")
    assert winograd.least_of_all(small, detect(), 1.0, 1e9) == small.flops / 1e9


def test_lines_and_means() -> None:
    row = {"ours": 600.0, "direct": 200.0, "onednn": 300.0, "limit": 800.0}
    rows = [row | {"problem": "a,weights=constant"}, row | {"problem": "b", "onednn": None}]
    assert winograd.line(rows[0]).split()[1:] == ["600", "200", "300", "3.00", "2.00", "800", "75%"]
    assert winograd.line(rows[1]).split()[1:] == ["600", "200", "-", "3.00", "-", "800", "75%"]
    assert winograd.means(rows) == [
        "geometric mean over onednn, weights constant: 2.00",
        "geometric mean over direct, weights constant: 3.00",
        "geometric mean over direct, weights variable: 3.00",
    ]


def test_errors_have_a_line_for_each_method() -> None:
    row = winograd.accuracy(8, (3, 3), (2, 4), detect())
    header, direct, small, large = winograd.error_table([row])
    assert header.split()[2:] == list(KINDS)
    assert direct.split()[:2] == ["8", "direct"]
    assert [small.split()[0], large.split()[0]] == ["F2", "F4"]
    assert all(len(line.split()) >= len(KINDS) + 1 for line in (direct, small, large))


def test_other_filters_have_a_line_for_each_tile_and_a_column_for_each_depth() -> None:
    rows = [
        {"depth": depth, "taps": [1, 5], "F4": {"gaussian": 1.0 + depth, "scaled": depth}}
        for depth in winograd.DEPTHS
    ]
    header, line = winograd.worst_table(rows)
    assert header.split() == ["filter", "output", "saves", *map(str, winograd.DEPTHS)]
    assert line.split() == ["1x5", "4", "2.50", *(f"{1 + d:.2f}" for d in winograd.DEPTHS)]


def test_every_problem_can_be_filtered() -> None:
    for problems in winograd.PROBLEMS.values():
        assert all(why_not_winograd(parse_problem(text)) is None for text in problems)
