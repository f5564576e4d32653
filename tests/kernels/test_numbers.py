"""Block sizes, intervals of medians, durations as text, and the memory that a problem needs."""

import tracemalloc
from fractions import Fraction
from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.strategies import problems
from tilewise.kernels.block_sizes import balanced_depth, equal_block
from tilewise.kernels.errors import ProblemError
from tilewise.kernels.footprint import GIB, check_memory, working_bytes
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.oracle.reference import reference
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.quoting import duration
from tilewise.kernels.statistics import median_interval


@settings(deadline=None)
@given(st.integers(1, 5000), st.sampled_from([0, 64, 100, 512, 6000]))
def test_chunks_are_balanced(extent: int, wanted: int) -> None:
    chunk = balanced_depth(extent, wanted)
    chunks = -(-extent // chunk)
    assert chunk * chunks - extent < chunks
    assert 1 <= chunk <= extent


@settings(deadline=None)
@given(st.integers(1, 5000), st.sampled_from([0, 16, 200, 512]), st.integers(1, 80))
def test_blocks_are_equal_counted_in_panels(extent: int, wanted: int, unit: int) -> None:
    block = equal_block(extent, wanted, unit)
    assert block % unit == 0
    assert -(-extent // unit) % (block // unit) == 0


def exact(count: int) -> tuple[int, int]:
    """The same in rational numbers."""
    tail = Fraction(0)
    for k in range(count // 2):
        tail += Fraction(comb(count, k), 2**count)
        if tail > Fraction(1, 40):
            return max(0, k - 1), count - 1 - max(0, k - 1)
    return max(0, count // 2 - 1), min(count - 1, count - count // 2)


@pytest.mark.parametrize("count", [1, 2, 5, 6, 7, 20, 71, 300, 997])
def test_the_interval_is_that_of_rational_numbers(count: int) -> None:
    assert median_interval(count) == exact(count)


def test_so_many_samples_that_no_float_holds_their_binomials() -> None:
    low, high = median_interval(10_000)
    assert low + high == 9_999
    # half of 1.96 standard deviations of 10000 fair coins, 50 each
    assert low == pytest.approx(5_000 - 98, abs=2)


@pytest.mark.parametrize(("time_us", "said"), [
    (0.0136, "13.6 ns"), (0.99, "990.0 ns"), (1.0, "1.0 us"), (9999.0, "9999.0 us"),
    (13595.1, "13.60 ms"), (12e6, "12.00 s"), (0.0, "0.0 ns"), (None, "-"),
])  # fmt: skip
def test_the_unit_fits(time_us, said):
    assert duration(time_us) == said


FEW_BYTES = 100_000  # of Python's own objects


@pytest.mark.parametrize("layout", ["nhwc_hwcf", "nchw_fchw"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "bf16", "i8"])
@pytest.mark.parametrize("extents", [
    "h=9,w=7,ci=8,co=8,kh=3,kw=3,pad=70", "h=1,w=1,ci=16,co=1,kh=1,kw=1,pad=120",
    "h=1,w=1,ci=16,co=1,kh=1,kw=1,stride=120,pad=120",
    "h=9,w=7,ci=8,co=4,kh=3,kw=3,dilation=40,pad=60,groups=2", "h=120,w=120,ci=16,co=1,kh=1,kw=1",
])  # fmt: skip
def test_the_reference_takes_no_more_memory(extents: str, dtype: str, layout: str) -> None:
    problem = parse_problem(f"conv2d:n=1,{extents},layout={layout},dtype={dtype}")
    tracemalloc.start()
    try:
        reference(problem, make_operands(problem))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert working_bytes(problem) > peak - FEW_BYTES


def test_padding_patches_and_the_result_are_counted() -> None:
    base = "conv2d:n=1,h=64,w=64,ci=4,co=4,kh=3,kw=3,dtype=f32,layout="
    for layout in ("nhwc_hwcf", "nchw_fchw"):
        plain, padded = (
            working_bytes(parse_problem(base + layout + more)) for more in ("", ",pad=100")
        )
        assert padded - plain > 4 * 8 * (264**2 - 64**2)
    nchw, nhwc = (
        working_bytes(parse_problem(base + layout)) for layout in ("nchw_fchw", "nhwc_hwcf")
    )
    assert nchw - nhwc == 4 * 9 * 62 * 62 * 4
    dilated = working_bytes(parse_problem(base + "nchw_fchw,dilation=30"))
    assert dilated < nchw, "fewer pixels see all taps"


@pytest.mark.parametrize("pad", [25_000, 2**31 - 1])
def test_an_image_of_nothing_but_padding_has_to_fit(pad: int) -> None:
    problem = parse_problem(
        f"conv2d:n=1,h=1,w=1,ci=1,co=1,kh=1,kw=1,stride={pad},pad={pad},dtype=f32"
    )
    assert problem.bytes < 500, "padding is not stored"
    assert working_bytes(problem) > 3 * 8 * (2 * pad) ** 2
    with pytest.raises(ProblemError, match=r"needs .* this machine has 32\.0 GiB") as caught:
        check_memory(problem, 32 * GIB)
    assert caught.value.field == "problem"


def test_a_problem_has_to_fit_in_memory() -> None:
    square = parse_problem("matmul:m=8192,n=8192,k=8192,dtype=f32")
    copies = 4 + 2 + 5  # of A, B and C in float64, beside the three operands
    needed = (3 * 4 + copies * 8) * 8192**2
    check_memory(square, needed + GIB)
    with pytest.raises(ProblemError, match=r"needs 6\.2 GiB .* has 7\.2 GiB") as caught:
        check_memory(square, needed + GIB - GIB // 10)
    assert caught.value.field == "problem"


@given(problems)
def test_every_operand_is_counted(problem: Problem) -> None:
    held = sum(operand.nbytes for operand in make_operands(problem).values())
    assert working_bytes(problem) > held
    assert problem.bytes <= held if problem.quantised_weights else problem.bytes == held
