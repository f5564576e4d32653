"""Native kernels: any problem and schedule, every dtype, exactness, refusals."""

import gc
import weakref
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llvmlite import ir

from tests.cases import cases, some
from tests.kernels.native_case import TARGETS, check
from tests.kernels.nest.test_steps import check as check_nest
from tests.kernels.strategies import convolutions, problems, schedules
from tilewise.kernels.arithmetic import arithmetic_of, must_pack
from tilewise.kernels.errors import LoweringError, ScheduleError
from tilewise.kernels.native import lower
from tilewise.kernels.native.microkernels.outer_product_code import OuterProductSpec
from tilewise.kernels.native.plan import plan
from tilewise.kernels.nest import Fetched, nest_of
from tilewise.kernels.oracle.operands import make_operands, to_bf16, widened
from tilewise.kernels.oracle.reference import compare, reference
from tilewise.kernels.problem import Conv2d, Matmul, parse_problem
from tilewise.kernels.schedule import (
    Fuse,
    Interleave,
    Pack,
    Prefetch,
    Register,
    Schedule,
    Split,
    Step,
    Stream,
    Sweep,
    Tile,
    Unroll,
    Winograd,
    loop_nest,
)
from tilewise.kernels.target import Target


@pytest.mark.timeout(900)  # without cached drivers most of it is compilation
@cases(160, short=120)
@given(st.data())
def test_any_problem_with_any_legal_schedule(data: st.DataObject) -> None:
    problem = data.draw(problems)
    target = data.draw(st.sampled_from(TARGETS))
    schedule = data.draw(schedules(problem, target))
    check(problem, schedule, target, data.draw(st.integers(0, 1000)))


@cases(20, short=8)
@given(st.data())
def test_results_of_bytes_have_a_scale_for_each_channel(data: st.DataObject) -> None:
    image = "conv2d:n=1,h=5,w=6,ci=7,co=19,kh=3,kw=2,dtype=i8,out=i8,requant=channel"
    texts = [
        "matmul:m=9,n=21,k=13,dtype=i8,out=u8,requant=channel",
        image,
        f"{image},layout=nchw_fchw",
    ]
    problem = parse_problem(data.draw(st.sampled_from(texts)))
    target = data.draw(st.sampled_from(TARGETS))
    check(problem, data.draw(schedules(problem, target)), target, data.draw(st.integers(0, 1000)))


def inner_products(target: Target, dtype: str, rows: int, cols: int, vectors: int) -> Schedule:
    """Everything read in place, with two vectors in an iteration."""
    lanes = vectors * target.lanes(dtype)
    return Schedule((Register(rows, cols), Split("k", lanes), Unroll(2)))


@pytest.mark.parametrize(
    ("target", "dtype"), some(product(TARGETS, ["f32", "f64", "f16", "bf16"]), of=5)
)
def test_nan_and_infinity_behind_a_masked_tail_stay_out(dtype: str, target: Target) -> None:
    """What follows the end of a row is the next row; lanes that are masked out are true zeros."""
    problem = parse_problem(f"matmul:m=3,n=3,k=37,dtype={dtype},transpose_b")
    for value in (np.nan, np.inf):
        operands = make_operands(problem, 0)
        for name in ("A", "B"):
            bad = np.full(37, value, np.float32)
            operands[name][1] = to_bf16(bad) if dtype == "bf16" else bad
        lower(problem, inner_products(target, dtype, 2, 2, 1), target).run(operands)
        kept = operands["C"][::2, ::2].astype(np.float64)
        assert np.isfinite(kept).all()
        assert not np.isfinite(operands["C"][1].astype(np.float64)).any()


@pytest.mark.timeout(900)
@cases(40)
@given(st.data())
def test_nan_and_infinity_come_out_as_ieee_arithmetic_has_it(data: st.DataObject) -> None:
    """Single elements or whole rows, columns and pixels, which lie beside padding and edges."""
    problem = data.draw(problems.filter(lambda p: p.element.is_float and not p.quantised_weights))
    # Windows skip padding: a filter's NaN times that is no NaN (see the tests of windows).
    skips = nest_of(problem).group and problem.is_padded
    target = data.draw(st.sampled_from(TARGETS))
    operands = make_operands(problem, data.draw(st.integers(0, 1000)))
    for name in ("A",) if skips else ("A", "B"):
        for _ in range(data.draw(st.integers(0, 2))):
            value = np.array(data.draw(st.sampled_from([np.nan, np.inf, -np.inf])), np.float32)
            at: list[int | slice] = [data.draw(st.integers(0, n - 1)) for n in operands[name].shape]
            if data.draw(st.booleans()):
                at[data.draw(st.integers(0, len(at) - 1))] = slice(None)
            bits = to_bf16(value) if problem.element.name == "bf16" else value
            operands[name][tuple(at)] = bits
    with np.errstate(invalid="ignore"):
        expected = reference(problem, operands)
    lower(problem, data.draw(schedules(problem, target)), target).run(operands)
    result = widened(operands["C"], problem.result.name)
    assert np.array_equal(np.isnan(result), np.isnan(expected.value))
    infinite = np.isinf(expected.value)
    assert np.array_equal(result[infinite], expected.value[infinite])
    finite = np.isfinite(expected.value) & np.isfinite(expected.tolerance)
    error = np.abs(result[finite] - expected.value[finite])
    assert (error <= expected.tolerance[finite]).all()


BYTES: dict[str, tuple[Step, ...]] = {
    "m=7,n=19": (Pack("B"), Pack("A"), Register(4, 16), Unroll(4)),
    "m=7,n=2,transpose_b": (Register(4, 2), Split("k", 64), Unroll(2)),
    "m=2,n=130": (Stream("k", 16), Register(2, 64), Sweep("n")),
    "m=2,n=131": (Stream("k", 16), Register(2, 64), Sweep("n"), Interleave("k", 4)),
    "m=2,n=132": (Stream("k", 64), Register(1, 64, "rows"), Sweep("n")),
}


@pytest.mark.parametrize("keys", BYTES)
@pytest.mark.parametrize(("a", "b"), [(-128, -128), (127, -128), (-128, 127)])
def test_i8_extremes_are_exact(a: int, b: int, keys: str, host: Target) -> None:
    problem = parse_problem(f"matmul:{keys},k=1001,dtype=i8")
    operands = make_operands(problem, 0)
    operands["A"][...], operands["B"][...] = a, b
    lower(problem, Schedule(BYTES[keys]), host).run(operands)
    assert (operands["C"] == a * b * 1001).all()


@pytest.mark.parametrize("layout", ["nhwc_hwcf", "nchw_fchw"])
@pytest.mark.parametrize("sides", ["stride=1x2", "stride=3x1,dilation=2x1", "pad=2x0x1x3"])
def test_sides_of_a_convolution_differ(layout: str, sides: str, host: Target) -> None:
    text = f"conv2d:n=1,h=9,w=11,ci=5,co=20,kh=3,kw=2,{sides},layout={layout},dtype=f32,bias"
    check(parse_problem(text), Schedule((Pack("B"), Pack("A"), Register(3, 16))), host, 0)


ONES = Matmul(m=1, n=1, k=1, dtype="f32")
WHOLE = Schedule((Pack("B"), Pack("A"), Register(4, 16), Unroll(4)))


BF16_IN_PLACE = (
    parse_problem("matmul:m=29,n=70,k=64,dtype=bf16"),
    Schedule((Stream("k", 32), Pack("B"), Register(4, 32), Unroll(4))),
)


def test_bf16_reads_a_in_place_where_pairs_fit(host: Target) -> None:
    if arithmetic_of(BF16_IN_PLACE[0], host).instruction.k == 1:
        pytest.skip(f"{host.cpu} has no instruction that multiplies bf16 pairs")
    check(*BF16_IN_PLACE, host, 2)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("transpose", ["", ",transpose_a", ",transpose_b"])
def test_panels_that_stay_narrow_have_an_odd_depth(
    dtype: str, transpose: str, host: Target
) -> None:
    text = f"matmul:m=24,n=37,k=29,dtype={dtype},weights=constant{transpose}"
    far = replace(host, l2_bytes=1)
    check(parse_problem(text), Schedule((Stream("k", 8), *WHOLE.steps)), far, 7)


@pytest.mark.parametrize("unroll", [2, 3, 4])
def test_steps_that_an_unrolled_loop_leaves_are_computed(unroll: int, host: Target) -> None:
    for left in range(unroll):
        problem = parse_problem(f"matmul:m=5,n=48,k={2 * unroll + left},dtype=f32")
        check(problem, Schedule((Pack("B"), Register(5, 48), Unroll(unroll))), host, left)


@pytest.mark.parametrize(
    ("keys", "steps"),
    [
        ("ci=8,dtype=f32", (Stream("ci", 4), Pack("B"), Tile("n", 1))),
        ("ci=6,dtype=bf16", (Pack("B"), Tile("n", 1), Pack("A"))),
        ("ci=8,dtype=i8", (Pack("B"), Tile("n", 1), Pack("A"))),
    ],
)
def test_taps_find_their_pixels_in_k_blocks_and_words(
    keys: str, steps: tuple[Step, ...], host: Target
) -> None:
    """Columns of a filter are neighbours in whole pixels only; words hold several channels."""
    problem = parse_problem(f"conv2d:n=1,h=6,w=9,co=20,kh=3,kw=3,{keys}")
    check(problem, Schedule((*steps, Register(4, 16))), host, 6)


def test_padding_of_an_image_full_of_infinity_stays_zero(host: Target) -> None:
    problem = parse_problem("conv2d:n=1,h=3,w=3,ci=2,co=2,kh=3,kw=3,pad=1,dtype=f32")
    operands = make_operands(problem, 0)
    operands["A"][...] = np.inf
    operands["B"][...] = 1.0
    schedule = Schedule((Pack("B"), Tile("n", 1), Pack("A"), Register(2, 16)))
    lower(problem, schedule, host).run(operands)
    assert np.isposinf(operands["C"]).all()


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("matmul:m=9,n=53,k=517,dtype=f32,bias", WHOLE.steps),
        ("conv2d:n=1,h=9,w=9,ci=24,co=19,kh=3,kw=3,pad=1,dtype=f32,bias", WHOLE.steps),
        ("conv2d:n=1,h=9,w=9,ci=24,co=19,kh=3,kw=3,pad=1,dtype=f32,bias",
         (Winograd(4), Pack("B"), Tile("t", 4), Pack("A"), Register(4, 16))),
        ("conv2d:n=1,h=9,w=9,ci=32,co=32,kh=3,kw=3,pad=1,groups=32,dtype=f32,bias",
         (Register(3, 16),)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("most", ["relu", "relu6"])
def test_a_nan_stays_and_infinities_end_at_the_limits(
    text: str, steps: tuple[Step, ...], most: str, host: Target
) -> None:
    problem = parse_problem(f"{text},epilogue={most}")
    operands = make_operands(problem, 0)
    operands["bias"][[3, 7, 11]] = np.nan, np.inf, -np.inf
    lower(problem, Schedule(steps), host).run(operands)
    limit = 6 if most == "relu6" else np.inf
    assert np.isnan(operands["C"][..., 3]).all()
    assert (operands["C"][..., 7] == limit).all() and (operands["C"][..., 11] == 0).all()
    others = np.delete(operands["C"], [3, 7, 11], axis=-1)
    assert others.min() == 0 and others.max() <= limit


def test_short_runs_repeat_inside_one_call(host: Target) -> None:
    problem = parse_problem("matmul:m=8,n=16,k=4,dtype=i32,init=accumulate")
    operands = make_operands(problem, 0)
    start = operands["C"].copy()
    product = operands["A"] @ operands["B"]
    lower(problem, WHOLE, host).bind(operands)(3)
    assert np.array_equal(operands["C"], start + 3 * product)


def test_refusals(host: Target) -> None:
    in_place = Schedule((Register(2, 16),))
    for needs in ("f32,transpose_b", "bf16", "f16", "i8"):
        with pytest.raises(LoweringError, match="pack operand="):
            lower(parse_problem(f"matmul:m=4,n=4,k=4,dtype={needs}"), in_place, host)
    with pytest.raises(LoweringError, match="chunk of depth 3"):
        odd = Schedule((Stream("k", 3), *WHOLE.steps))
        pairs = replace(host, vector_bytes=64, features=host.features | {"avx512bf16"})
        lower(parse_problem("matmul:m=4,n=4,k=8,dtype=bf16"), odd, pairs)
    with pytest.raises(LoweringError, match="cols=17 is not a multiple"):
        lower(ONES, Schedule((Register(1, 17),)), host)
    with pytest.raises(ScheduleError):
        lower(ONES, Schedule(()), host)
    with pytest.raises(LoweringError, match="lanes=17 is not a multiple"):
        lower(ONES, Schedule((Register(1, 1), Split("k", 17))), host)
    split = inner_products(host, "f32", 2, 2, 1)
    with pytest.raises(LoweringError, match="add the step pack operand=B"):
        lower(parse_problem("matmul:m=4,n=4,k=4,dtype=f32"), split, host)
    with pytest.raises(ScheduleError, match=r"contiguous rows of A.*drop the step"):
        lower(parse_problem("matmul:m=4,n=1,k=4,dtype=f32,transpose_a"), split, host)


def test_operands_are_checked_before_any_address_is_used(host: Target) -> None:
    problem = parse_problem("matmul:m=4,n=8,k=4,dtype=f32")
    executable = lower(problem, WHOLE, host)
    good = make_operands(problem, 0)
    for wrong in (
        {"A": good["A"].T.copy()[:2]},
        {"B": good["B"].astype(np.float64)},
        {"A": np.asfortranarray(good["A"])},
    ):
        with pytest.raises(LoweringError, match="operand"):
            executable.run(good | wrong)
    with pytest.raises(LoweringError, match="operand C is absent"):
        executable.run({k: v for k, v in good.items() if k != "C"})


def test_a_call_keeps_the_arrays_that_it_was_bound_to(host: Target) -> None:
    """A caller may put others in their place, and the call goes on with those it knows."""
    problem = parse_problem("matmul:m=64,n=512,k=64,dtype=f32")
    operands, executable = make_operands(problem, 0), lower(problem, WHOLE, host)
    scratch = {name: np.empty(size, np.uint8) for name, size in executable.scratch_bytes.items()}
    given = [*operands.values(), *scratch.values()]
    dropped = [weakref.ref(array) for array in given]
    call = executable.bind(operands, scratch)
    operands |= make_operands(problem, 1)
    scratch.clear()
    del given
    gc.collect()
    assert all(array() is not None for array in dropped)
    call()
    del call
    gc.collect()
    assert not any(array() is not None for array in dropped)


@pytest.mark.parametrize("dtype", ["bf16", "i8"])
def test_channels_of_a_group_that_cut_words_are_packed(dtype: str, host: Target) -> None:
    text = f"conv2d:n=1,h=1,w=2,ci=6,co=64,kh=1,kw=1,groups=2,dtype={dtype}"
    problem = parse_problem(text)
    assert "A" in must_pack(problem, arithmetic_of(problem, host))
    tile = Register(2, host.lanes(problem.element.name))
    check(problem, Schedule((Tile("g", 1), Pack("B"), Tile("n", 1), Pack("A"), tile)), host, 0)


def test_constant_weights_are_packed_when_bound_and_not_when_run(host: Target) -> None:
    problem = parse_problem("matmul:m=20,n=70,k=33,dtype=f32,weights=constant")
    operands = make_operands(problem, 0)
    expected = reference(problem, operands)
    schedule = Schedule((Tile("n", 32), Stream("k", 17), Pack("B"), Register(4, 32)))
    call = lower(problem, schedule, host).bind(operands)
    operands["B"][...] = np.nan
    call()
    assert np.less_equal(*compare(problem, operands["C"], expected))


@pytest.mark.parametrize("weights", ["constant", "variable"])
def test_a_prefetch_is_of_panels_or_of_the_block_that_is_packed_next(
    weights: str, host: Target
) -> None:
    problem = parse_problem(f"matmul:m=16,n=256,k=64,dtype=f32,weights={weights}")
    steps = (Tile("n", 64), Pack("B"), Prefetch("B"), Register(4, 32))
    planned = plan(problem, Schedule(steps), host)
    assert isinstance(planned.spec, OuterProductSpec)
    assert planned.spec.fetch is not None
    assert (planned.spec.fetch.what is Fetched.NEXT_PANEL) == (weights == "constant")
    assert (planned.spec.prefetched > 0) == (weights == "variable")
    assert ("next_block" in planned.source.text) == (weights == "variable")
    full = planned.kernel.pieces(planned.use)["full"]
    assert str(full.emit(ir.Module()).module).count("llvm.prefetch") > 0


@pytest.mark.parametrize(
    ("target", "size", "kind"),
    some(
        product(
            TARGETS[:2],
            [(64, 24), (150, 37), (65, 3)],
            [("bf16", 1), ("bf16", 2), ("bf16", 4), ("i8", 3), ("i8", 4), ("f16", 4)],
        ),
        of=5,
    ),
)
def test_words_of_several_rows_are_joined_whole_or_vector_by_vector(
    kind: tuple[str, int], size: tuple[int, int], target: Target
) -> None:
    """Whole panels, cut ones, and rows that are left of the last word."""
    (dtype, vectors), (n, k) = kind, size
    problem = parse_problem(f"matmul:m=5,n={n},k={k},dtype={dtype}")
    tile = Register(4, vectors * target.lanes(dtype))
    check(problem, Schedule((Pack("B"), Pack("A"), tile)), target, n + k)


PIXELS = "conv2d:n=2,h=3,w=5,ci=8,co=20,kh=1,kw=1,dtype=f32,bias,epilogue=relu"
SCHEDULE = Schedule((Fuse(), Pack("B"), Register(4, 16)))


def of_pixels(problem: Conv2d) -> Conv2d:
    """The convolution with a filter of one pixel, of all channels."""
    alone = {"kh": 1, "kw": 1, "stride": 1, "dilation": 1, "pad": 0, "groups": 1}
    return replace(problem, layout="nhwc_hwcf", **alone)


@cases(25, short=10)
@given(st.data(), convolutions().map(of_pixels), st.sampled_from(TARGETS))
def test_any_schedule_behind_it_is_right(
    data: st.DataObject, problem: Conv2d, target: Target
) -> None:
    matrices = problem.as_matmul
    assert matrices is not None
    inner = data.draw(schedules(matrices, target))
    schedule = Schedule((Fuse(), *inner.steps))
    nest = loop_nest(problem, schedule)
    assert nest == loop_nest(matrices, inner)
    check(problem, schedule, target, data.draw(st.integers(0, 9)))
    check_nest(nest)


@pytest.mark.parametrize(
    "other", ["stride=2", "pad=1", "groups=2", "layout=nchw_fchw", "kh=2", "stride=1x2", "kw=3"]
)
def test_other_convolutions_are_refused(other: str) -> None:
    name = other.partition("=")[0]
    keys = [key for key in PIXELS.split(",") if not key.startswith(f"{name}=")]
    with pytest.raises(ScheduleError, match="step 'fuse' cannot be applied"):
        loop_nest(parse_problem(",".join([*keys, other])), SCHEDULE)


def test_dims_of_the_image_are_gone() -> None:
    schedule = Schedule((Fuse(), Tile("oh", 1), Pack("B"), Register(4, 16)))
    with pytest.raises(ScheduleError, match="oh"):
        loop_nest(parse_problem(PIXELS), schedule)
