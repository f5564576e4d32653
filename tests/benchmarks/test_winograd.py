"""The limit that a convolution by minimal filtering is held to, and the tables that are printed."""

import pytest

from benchmarks.kernels import winograd
from kernels.oracle.accuracy import KINDS
from kernels.problem import parse_problem
from kernels.schedule import Pack, Register, Schedule, Tile, Winograd
from kernels.target import detect

PROBLEM = parse_problem("conv2d:n=1,h=16,w=16,ci=32,co=64,kh=3,kw=3,pad=1,dtype=f32")


def test_the_limit_is_products_at_the_peak_and_transforms_at_the_speed_of_copies() -> None:
    direct = Schedule((Tile("n", 1), Pack("A"), Register(4, 32)))
    filtered = Schedule((Winograd(4), Pack("B"), Pack("A"), Register(4, 32)))
    assert winograd.least_seconds(PROBLEM, direct, 100.0, 1.0) == PROBLEM.flops / 100.0 / 1e9
    moved = 4 * 36 * (16 * 32 + 16 * 64 + 32 * 64)  # tiles, products, filter
    expected = PROBLEM.flops / 4 / 100.0 / 1e9 + 2 * moved / 50.0 / 1e9
    assert winograd.least_seconds(PROBLEM, filtered, 100.0, 50.0) == pytest.approx(expected)


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
    direct, small, large = winograd.error_lines(winograd.accuracy(8, detect()))
    assert direct.split()[:2] == ["8", "direct"]
    assert [small.split()[0], large.split()[0]] == ["F2", "F4"]
    assert all(len(line.split()) >= len(KINDS) + 1 for line in (direct, small, large))
