"""Exported modules of convolutions by Winograd transforms."""

from pathlib import Path

import pytest

from tests.kernels.native.export.test_export import run_alone
from tilewise.kernels.native.export.module import export
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Nontemporal, Pack, Register, Schedule, Step, Tile, Winograd
from tilewise.kernels.target import Target

TEXT = "conv2d:n=2,h=9,w=11,ci=5,co=40,kh={kh},kw={kw},{rest},dtype=f32,bias,weights={weights}"


FILTERS = [(3, 3, 4), (5, 5, 3), (7, 1, 2)]
PLAIN, PADDED = "pad=0", "pad=3,layout=nchw_fchw"
# Each filter with both weights and both layouts, each weights with both layouts: all threes are
# native kernels of tests/kernels/native/test_winograd.py.
PAIRS = [
    (filters, weights, rest)
    for number, filters in enumerate(FILTERS)
    for weights, rest in zip(
        ("variable", "constant"), (PLAIN, PADDED) if number % 2 else (PADDED, PLAIN), strict=True
    )
]


def exported(filters: tuple[int, int, int], weights: str, rest: str, host: Target) -> str:
    kh, kw, output = filters
    problem = parse_problem(TEXT.format(kh=kh, kw=kw, rest=rest, weights=weights))
    cols = 2 * host.lanes("f32")
    steps: tuple[Step, ...] = (Winograd(output), Tile("co", cols), Pack("B"))
    steps += (Tile("t", 4), Pack("A"), Register(2, cols))
    return export(problem, Schedule(steps), host)


@pytest.mark.full
@pytest.mark.parametrize(("filters", "weights", "rest"), PAIRS)
def test_a_module_checks_itself(
    filters: tuple[int, int, int], weights: str, rest: str, host: Target, tmp_path: Path
) -> None:
    """With three pixels of padding some outputs see zeros alone, and have rounding of others."""
    done = run_alone(exported(filters, weights, rest, host), tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.full
@pytest.mark.parametrize(("filters", "weights", "rest"), PAIRS[:2])
def test_a_module_finds_itself_wrong(
    filters: tuple[int, int, int], weights: str, rest: str, host: Target, tmp_path: Path
) -> None:
    text = exported(filters, weights, rest, host)
    wrong = text.replace("c_tile = a_panels", "c_tile = 64 + a_panels")
    assert wrong != text
    assert "WRONG" in run_alone(wrong, tmp_path).stderr


PAST = (Winograd(2), Pack("B"), Tile("t", 4), Pack("A"), Register(2, 32), Nontemporal())


@pytest.mark.full
@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("conv2d:n=1,h=6,w=7,ci=5,co=48,kh=3,kw=3,dtype=f32", PAST),
        (
            "conv2d:n=1,h=8,w=7,ci=64,co=64,kh=3,kw=3,groups=64,dtype=f32",
            (Register(1, 16), Nontemporal()),
        ),
    ],
)
def test_a_module_writes_past_the_caches(
    text: str, steps: tuple[Step, ...], host: Target, tmp_path: Path
) -> None:
    """Also one of a depthwise convolution: what marks such stores lies outside of functions."""
    source = export(parse_problem(text), Schedule(steps), host)
    assert "!nontemporal !0" in source
    done = run_alone(source, tmp_path)
    assert done.returncode == 0, done.stderr
