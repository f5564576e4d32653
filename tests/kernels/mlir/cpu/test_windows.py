"""Depthwise convolutions with padding: nothing beside the image is copied, or multiplied."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from iree.compiler import ir

from tests.cases import cases
from tests.kernels.mlir.build import schedule
from tests.kernels.mlir.nests import products, read
from tilewise.kernels.mlir.cpu import windows
from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.kernels.mlir.lowering.apply import Diagnostics, apply_script
from tilewise.kernels.mlir.proof.prove import prove
from tilewise.kernels.mlir.transform.module import with_payload
from tilewise.kernels.native import lower
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.problem import Conv2d, parse_problem
from tilewise.kernels.schedule import Jam, Register, Schedule, Tile
from tilewise.kernels.target import Target

small = st.integers(1, 3)
TILE = ("register rows=2 cols=16 outer=cols", "jam dim=oh factor=2")
LAYER = "conv2d:n=1,h=12,w=14,ci=16,co=16,kh=3,kw=3,pad=1,groups=16,dtype=f32"


def applied(problem: Conv2d, steps: Schedule) -> str:
    """The transformed module as text."""
    with ir.Context() as context, ir.Location.unknown():
        text = with_payload(problem, emit_script(problem, steps))
        return str(apply_script(text, Diagnostics(context)))


def taps_found(problem: Conv2d) -> int:
    """Products of the direct method that find a pixel of the image."""
    down, across = pixels_found(problem)
    return problem.n * problem.co * sum(down) * sum(across)


def finds_pixels(problem: Conv2d) -> bool:
    """Whether every output finds a pixel of the image."""
    return all(all(axis) for axis in pixels_found(problem))


def pixels_found(problem: Conv2d) -> list[list[int]]:
    """For lines and columns of outputs, how many of its taps each finds in the image."""
    axes = ((problem.h, problem.oh, problem.kh), (problem.w, problem.ow, problem.kw))
    return [
        [
            sum(
                0 <= output * problem.stride + tap * problem.dilation - problem.pad < extent
                for tap in range(taps)
            )
            for output in range(outputs)
        ]
        for extent, outputs, taps in axes
    ]


@st.composite
def padded(draw: st.DrawFn) -> tuple[Conv2d, Schedule]:
    """A depthwise convolution with padding, of whole register tiles."""
    lines, rows, groups = draw(small), draw(small), 16 * draw(st.integers(1, 2))
    kh, kw, stride = draw(st.integers(2, 4)), draw(small), draw(st.integers(1, 2))
    dilation, pad = draw(st.integers(1, 2)), draw(small)
    down, across = lines * draw(st.integers(2, 4)), rows * draw(st.integers(2, 4))
    extents = [
        (outputs - 1) * stride + dilation * (taps - 1) + 1 - 2 * pad
        for outputs, taps in ((down, kh), (across, kw))
    ]
    problem = Conv2d(
        n=1,
        h=max(1, extents[0]),
        w=max(1, extents[1]),
        ci=groups,
        co=groups,
        groups=groups,
        kh=kh,
        kw=kw,
        stride=stride,
        dilation=dilation,
        pad=pad,
        dtype=draw(st.sampled_from(["f32", "i32"])),
    )
    steps = [Tile("oh", 2 * lines)] if draw(st.booleans()) and problem.oh > 2 * lines else []
    rows, lines = min(rows, problem.ow), min(lines, problem.oh)
    jam = [Jam("oh", lines)] if lines > 1 else []
    outer = draw(st.sampled_from(["rows", "cols"]))
    return problem, Schedule((*steps, Register(rows, 16, outer), *jam))


@pytest.mark.full
@pytest.mark.timeout(900)
@cases(16)
@given(padded())
def test_taps_in_the_padding_are_left_out_and_no_others(
    host: Target, drawn: tuple[Conv2d, Schedule]
) -> None:
    problem, steps = drawn
    text = applied(problem, steps)
    assert "nnan" not in text, "flags that allow to skip a product are gone with it"
    most = problem.flops // 2
    if "// taps that lie in the padding" not in emit_script(problem, steps):
        assert products(text) == most
    elif finds_pixels(problem):
        assert products(text) == taps_found(problem)
    else:  # regions that find no pixel multiply zeros
        assert taps_found(problem) <= products(text) <= most


def test_tiles_of_all_regions_are_the_tiles_of_the_native_kernel(host: Target) -> None:
    problem, steps = parse_problem(LAYER), schedule(*TILE)
    assert isinstance(problem, Conv2d)
    found = sorted(place.trips for place in read(applied(problem, steps)).kernels)
    counted = lower(problem, steps, host).counted_run(make_operands(problem, 0))
    # four corners; left and right in the loop over lines; the inside; above and below
    assert found == [[], [4], [4, 5], [5], [5]]
    assert counted["micro_kernels"] == 4 + 2 * 4 + 4 * 5 + 2 * 5


def test_too_much_code_copies_the_padding_and_proves(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, steps = parse_problem(LAYER), schedule(*TILE)
    assert isinstance(problem, Conv2d)
    assert "memref.alloc" not in applied(problem, steps)
    monkeypatch.setattr(windows, "MOST_PRODUCTS", 100)
    assert "memref.alloc" in applied(problem, steps)
    proof = prove(problem, steps)
    assert proof.ok, proof.message


@pytest.mark.full
@pytest.mark.parametrize(
    "keys",
    [
        {"pad": 3, "stride": 2},
        {"kh": 1, "kw": 1},
        {"kh": 1, "kw": 3, "dtype": "bf16"},
        {"pad": 2, "dilation": 2, "has_bias": True},
        {"layout": "nchw_fchw", "dtype": "i8"},
        {"layout": "nchw_fchw", "pad": 2, "dilation": 2},
        {"dtype": "f64", "epilogue": "relu"},
        {"h": 1, "w": 2},
        {"n": 2, "dtype": "f16"},
    ],
)
def test_every_kind_of_padding_proves(keys: dict[str, Any]) -> None:
    changed = {("bias" if k == "has_bias" else k): v for k, v in keys.items()}
    base = parse_problem(LAYER)
    assert isinstance(base, Conv2d)
    problem = replace(base, **changed)
    steps = schedule(*(("tile dim=n size=1",) if problem.n > 1 else ()),
                     "register rows=1 cols=16 outer=cols")  # fmt: skip
    proof = prove(problem, steps)
    assert proof.ok, proof.message


@pytest.mark.parametrize("groups", [8, 4])
def test_products_of_narrow_groups_with_several_inputs_are_of_whole_vectors(groups: int) -> None:
    base = parse_problem(LAYER)
    assert isinstance(base, Conv2d)
    problem = replace(base, h=5, w=6, groups=groups)
    steps = schedule("register rows=3 cols=16 outer=cols")
    products = re.findall(r"arith.mulf .* : vector<(\S+)xf32>", applied(problem, steps))
    assert set(products) == {"16"}
    proof = prove(problem, steps)
    assert proof.ok, proof.message
