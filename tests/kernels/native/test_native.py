"""Native kernels: any problem and schedule, every dtype and form, exactness, refusals."""

import ctypes
import gc
import weakref
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from llvmlite import ir

from tests.cases import cases, some
from tests.kernels.native_case import TARGETS, check
from tests.kernels.nest.test_steps import check as check_nest
from tests.kernels.strategies import (
    can_be_skinny,
    convolutions,
    dtypes,
    in_any_order,
    inits,
    plain_matmuls,
    problems,
    rearranged,
    schedules,
    skinny_schedules,
    volumes,
)
from tilewise.kernels.arithmetic import arithmetic_of, depthwise_vector, must_pack
from tilewise.kernels.errors import LoweringError, ScheduleError, UnsupportedError
from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.kernels.native import lower
from tilewise.kernels.native.microkernels.abi import PAST_CACHES
from tilewise.kernels.native.microkernels.outer_product_code import OuterProductSpec
from tilewise.kernels.native.microkernels.skinny_products import MOST_SHARING_ROWS
from tilewise.kernels.native.packing.transforms import RESULT_ARGUMENTS
from tilewise.kernels.native.plan import plan
from tilewise.kernels.nest import Fetched, nest_of
from tilewise.kernels.oracle.fast_algorithms import expected_by
from tilewise.kernels.oracle.operands import Operands, make_operands, to_bf16, widened
from tilewise.kernels.oracle.reference import compare, reference
from tilewise.kernels.problem import Conv2d, Matmul, Problem, parse_problem
from tilewise.kernels.schedule import (
    Fuse,
    Jam,
    KStreams,
    Nontemporal,
    Pack,
    Prefetch,
    Register,
    Schedule,
    Skinny,
    Split,
    Step,
    Strassen,
    Stream,
    Tile,
    Unroll,
    Winograd,
    check_legal,
    loop_nest,
)
from tilewise.kernels.target import Target


@pytest.mark.parametrize(
    ("kind", "ways"), [(problems, schedules), (volumes(), schedules), (problems, rearranged)],
    ids=["any", "volumes", "any order"],
)  # fmt: skip
@pytest.mark.timeout(900)  # without cached drivers most of it is compilation
@cases(200, short=45)
@given(st.data())
def test_any_problem_with_any_legal_schedule(kind, ways, data) -> None:
    problem, target = data.draw(kind), data.draw(st.sampled_from(TARGETS))
    check(problem, data.draw(ways(problem, target)), target, data.draw(st.integers(0, 1000)))


def inner_products(target: Target, dtype: str) -> Schedule:
    """Everything read in place, with two vectors in an iteration."""
    return Schedule((Register(2, 2), Split("k", target.lanes(dtype)), Unroll(2)))


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
        lower(problem, inner_products(target, dtype), target).run(operands)
        kept = operands["C"][::2, ::2].astype(np.float64)
        assert np.isfinite(kept).all()
        assert not np.isfinite(operands["C"][1].astype(np.float64)).any()


@pytest.mark.timeout(900)
@cases(26, short=20)
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
    "m=2,n=130": (Stream("k", 16), Register(2, 64), Skinny("n")),
    "m=2,n=131": (Stream("k", 8), Register(1, 64, "rows"), Skinny("n"), KStreams("k", 4)),
    "m=2,n=132": (Stream("k", 64), Register(1, 64, "rows"), Skinny("n")),
}


@pytest.mark.parametrize("keys", BYTES)
@pytest.mark.parametrize(("a", "b"), [(-128, -128), (127, -128), (-128, 127)])
def test_i8_extremes_are_exact(a: int, b: int, keys: str, host: Target) -> None:
    problem = parse_problem(f"matmul:{keys},k=1001,dtype=i8")
    operands = make_operands(problem, 0)
    operands["A"][...], operands["B"][...] = a, b
    lower(problem, Schedule(BYTES[keys]), host).run(operands)
    assert (operands["C"] == a * b * 1001).all()


WHOLE = Schedule((Pack("B"), Pack("A"), Register(4, 16), Unroll(4)))


@pytest.mark.parametrize(("text", "steps"), [
    ("matmul:m=9,n=53,k=517,dtype=f32,bias", WHOLE.steps),
    ("conv2d:n=1,h=9,w=9,ci=24,co=19,kh=3,kw=3,pad=1,dtype=f32,bias", WHOLE.steps),
    ("conv2d:n=1,h=9,w=9,ci=24,co=19,kh=3,kw=3,pad=1,dtype=f32,bias",
     (Winograd(4), Pack("B"), Tile("t", 4), Pack("A"), Register(4, 16))),
    ("conv2d:n=1,h=9,w=9,ci=32,co=32,kh=3,kw=3,pad=1,groups=32,dtype=f32,bias",
     (Register(3, 64),)),
])  # fmt: skip
@pytest.mark.parametrize("most", ["relu", "relu6"])
def test_nan_stays_and_infinity_becomes_the_limit(text, steps, most, host) -> None:
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
    in_place, split = Schedule((Register(2, 16),)), inner_products(host, "f32")
    odd, square = Schedule((Stream("k", 3), *WHOLE.steps)), "matmul:m=4,n=4,k=4,dtype="
    pairs = replace(host, vector_bytes=64, features=host.features | {"avx512bf16"})
    lanes = Schedule((Register(1, 1), Split("k", 17)))
    skinny = Schedule((Stream("k", 8), Register(1, 17), Skinny("n")))
    cut = Schedule((Stream("k", 3), Register(1, 16), Skinny("n")))
    many = Schedule((Stream("k", 32), Register(4, 32, "rows"), Skinny("n"), KStreams("k", 8)))
    gathered = "16 words of 4 rows of A, gathered from 8 streams"
    cases: list[tuple[str, Schedule, str]] = [
        ("matmul:m=1,n=64,k=64,dtype=f32", skinny, "cols=17 is not a multiple"),
        ("matmul:m=1,n=64,k=64,dtype=bf16", cut, "no multiple of the 2"),
        ("matmul:m=8,n=64,k=64,dtype=bf16", many, gathered),
        *((f"{square}{one}", in_place, "pack operand=") for one in ("f32,transpose_b", "bf16")),
        *((f"{square}{one}", in_place, "pack operand=") for one in ("f16", "i8")),
        ("matmul:m=4,n=4,k=8,dtype=bf16", odd, "chunk of depth 3"),
        (f"{square}f32", Schedule((Register(1, 17),)), "cols=17 is not a multiple"),
        (f"{square}f32", Schedule(()), "exactly one register"),
        ("matmul:m=1,n=1,k=1,dtype=f32", lanes, "lanes=17 is not a multiple"),
        (f"{square}f32", split, "add the step pack operand=B"),
        ("matmul:m=4,n=1,k=4,dtype=f32,transpose_a", split, "contiguous rows of A.*drop the step"),
    ]
    for text, schedule, why in cases:
        with pytest.raises((LoweringError, ScheduleError), match=why):
            lower(parse_problem(text), schedule, pairs if "k=4," not in text else host)


def test_operands_are_checked_before_any_address_is_used(host: Target) -> None:
    problem = parse_problem("matmul:m=4,n=8,k=4,dtype=f32")
    executable = lower(problem, WHOLE, host)
    good = make_operands(problem, 0)
    wide, other_order = good["B"].astype(np.float64), np.asfortranarray(good["A"])
    for wrong in ({"A": good["A"].T.copy()[:2]}, {"B": wide}, {"A": other_order}):
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


@pytest.mark.parametrize("unroll", [2, 3, 4])
def test_steps_that_an_unrolled_loop_leaves_are_computed(unroll: int, host: Target) -> None:
    for left in range(unroll):
        problem = parse_problem(f"matmul:m=5,n=48,k={2 * unroll + left},dtype=f32")
        check(problem, Schedule((Pack("B"), Register(5, 48), Unroll(unroll))), host, left)


def test_bf16_reads_a_in_place_where_pairs_fit(host: Target) -> None:
    problem = parse_problem("matmul:m=29,n=70,k=64,dtype=bf16")
    if arithmetic_of(problem, host).instruction.k == 1:
        pytest.skip(f"{host.cpu} has no instruction that multiplies bf16 pairs")
    check(problem, Schedule((Stream("k", 32), Pack("B"), Register(4, 32), Unroll(4))), host, 2)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("transpose", ["", ",transpose_a", ",transpose_b"])
def test_narrow_panels_of_an_odd_depth(dtype: str, transpose: str, host: Target) -> None:
    text = f"matmul:m=24,n=37,k=29,dtype={dtype},weights=constant{transpose}"
    far = replace(host, l2_bytes=1)
    check(parse_problem(text), Schedule((Stream("k", 8), *WHOLE.steps)), far, 7)


@pytest.mark.parametrize(("keys", "steps"), [
    ("ci=8,dtype=f32", (Stream("ci", 4), Pack("B"), Tile("n", 1))),
    ("ci=6,dtype=bf16", (Pack("B"), Tile("n", 1), Pack("A"))),
    ("ci=8,dtype=i8", (Pack("B"), Tile("n", 1), Pack("A"))),
])  # fmt: skip
def test_taps_find_pixels_in_blocks_and_words(keys: str, steps: Any, host: Target) -> None:
    """Columns of a filter are neighbours in whole pixels only; words hold several channels."""
    problem = parse_problem(f"conv2d:n=1,h=6,w=9,co=20,kh=3,kw=3,{keys}")
    check(problem, Schedule((*steps, Register(4, 16))), host, 6)


@pytest.mark.parametrize("dtype", ["bf16", "i8"])
def test_channels_of_a_group_that_cut_words_are_packed(dtype: str, host: Target) -> None:
    problem = parse_problem(f"conv2d:n=1,h=1,w=2,ci=6,co=64,kh=1,kw=1,groups=2,dtype={dtype}")
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
def test_a_prefetch_is_of_panels_or_of_the_next_block(weights: str, host: Target) -> None:
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


SIZES = [(64, 24), (150, 37), (65, 3)]
WORDS = [("bf16", 1), ("bf16", 2), ("bf16", 4), ("i8", 3), ("i8", 4), ("f16", 4)]


@pytest.mark.parametrize(("target", "size", "kind"), some(product(TARGETS[:2], SIZES, WORDS), of=5))
def test_words_of_several_rows_are_joined(kind, size, target) -> None:
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


@cases(25, short=6)
@given(st.data(), convolutions().map(of_pixels), st.sampled_from(TARGETS))
def test_any_schedule_after_fuse_is_right(data, problem, target) -> None:
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


@pytest.mark.parametrize("kind", [problems, plain_matmuls], ids=["any", "plain"])
@cases(400, short=80)
@given(st.data())
def test_any_legal_order_of_steps_is_lowered(kind, data) -> None:
    problem, target = data.draw(kind), data.draw(st.sampled_from(TARGETS))
    schedule = data.draw(rearranged(problem, target))
    plan(problem, schedule, target)
    check_script(problem, schedule)


def check_script(problem: Problem, schedule: Schedule) -> None:
    """There is one, or a refusal that says why; it changes the payload between its cleanups."""
    try:
        text = emit_script(problem, schedule)
    except (LoweringError, UnsupportedError):
        return
    lines = [line.strip() for line in text.splitlines()]
    written = [line for line in lines if line and not line.startswith("//")]
    cleans = ["transform.include @cleanup" in line for line in written]
    assert not any(first and second for first, second in pairwise(cleans)), schedule


TEXT = "conv2d:n=2,h=13,w=11,ci=20,co={co},kh=3,kw=3,pad=1,dtype=f32,bias,epilogue=relu"
STEPS = (Winograd(4), Pack("B"), Tile("t", 8), Pack("A"), Register(4, 32))
PAST = Schedule((*STEPS, Nontemporal()))
WINDOWS = "conv2d:n=1,h=13,w=48,ci={0},co={0},kh=3,kw=3,pad=1,groups={0},dtype=f32,bias"


def windows(problem: Problem, host: Target) -> Schedule:
    assert isinstance(problem, Conv2d)
    return Schedule((Register(2, depthwise_vector(problem, host).columns), Nontemporal()))


def run_at(problem: Problem, schedule: Schedule, offset: int, host: Target) -> Operands:
    """Operands with the right result, which begins so many elements behind a cache line."""
    operands = make_operands(problem, offset)
    whole = np.full(operands["C"].size + 32, np.nan, operands["C"].dtype)
    start = (-whole.ctypes.data % 64) // 4 + offset
    operands["C"] = whole[start : start + operands["C"].size].reshape(operands["C"].shape)
    expected = expected_by(problem, operands, reference(problem, operands), schedule.algorithm)
    lower(problem, schedule, host).run(operands)
    assert np.less_equal(*compare(problem, operands["C"], expected))
    return operands


@pytest.mark.parametrize("offset", [0, 1])
def test_an_aligned_result_takes_stores_past_the_caches(offset: int, host: Target) -> None:
    problem, tiles = parse_problem(TEXT.format(co=48)), list[int]()
    operands = run_at(problem, PAST, offset, host)
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(RESULT_ARGUMENTS))
    note = kind(lambda to, *_: tiles.append(to))
    call = lower(problem, PAST, host).bind(operands)
    names = plan(problem, PAST, host).source.parameters
    call.parameters[:, names.index(PAST_CACHES)] = ctypes.cast(note, ctypes.c_void_p).value
    call()
    assert len(tiles) == (0 if offset else 2 * 2 * 4 * 3)  # images, panels, tiles of each


@pytest.mark.parametrize("layout", ["nhwc_hwcf", "nchw_fchw"])
def test_windows_with_such_stores_are_right_at_any_place(layout: str, host: Target) -> None:
    problem = parse_problem(f"{WINDOWS.format(48)},layout={layout}")
    schedule = windows(problem, host)
    assert "past_caches" in plan(problem, schedule, host).functions
    for offset in (0, 1):
        run_at(problem, schedule, offset, host)


def test_rows_that_are_no_whole_vectors_are_refused(host: Target) -> None:
    small, narrow = parse_problem(TEXT.format(co=36)), parse_problem(WINDOWS.format(37))
    for problem, schedule in ((small, PAST), (narrow, windows(narrow, host))):
        with pytest.raises(LoweringError, match="step nontemporal: vectors of"):
            plan(problem, schedule, host)


@pytest.mark.parametrize(("text", "method", "why"), [
    (f"{TEXT.format(co=48)},layout=nchw_fchw", Winograd(4), "have no line of their own"),
    ("matmul:m=64,n=64,k=64,dtype=f32", Strassen(1), "cannot be combined with strassen"),
])  # fmt: skip
def test_results_that_are_always_written_to_the_caches(text: str, method: Step, why: str) -> None:
    with pytest.raises(ScheduleError, match=f"nontemporal operand=C.*{why}"):
        check_legal(parse_problem(text), Schedule((method, *PAST.steps[1:])))


def depthwise(**keys: object) -> Conv2d:
    """A depthwise problem whose sizes divide by nothing."""
    given = {"n": 1, "h": 13, "w": 19, "ci": 37, "co": 37, "kh": 3, "kw": 3, "dtype": "f32"}
    given |= {"groups": 37, "pad": 1, **keys}
    problem = parse_problem({"op": "conv2d", **given})
    assert isinstance(problem, Conv2d)
    return problem


def tile(problem: Conv2d, target: Target, rows: int = 3, *tail: Step) -> tuple[Step, ...]:
    """A register tile of one vector."""
    return (Register(rows, depthwise_vector(problem, target).columns), *tail)


@pytest.mark.parametrize(("pad", "rows", "lines"), [(0, 10, 2), (1, 7, 3), (4, 4, 3)])
def test_a_tile_larger_than_what_is_left(pad: int, rows: int, lines: int, host: Target) -> None:
    problem = depthwise(pad=pad, kh=1 + 2 * pad, kw=1 + 2 * pad, h=7, w=10)
    check(problem, Schedule(tile(problem, host, rows, Jam("oh", lines))), host, rows)


def test_padding_is_skipped_even_under_a_filter_that_is_not_finite(host: Target) -> None:
    """The corner tap of one channel is a NaN: outputs that find padding there do not read it."""
    problem = depthwise(h=8, w=20)
    operands = make_operands(problem, 0)
    operands["B"][0, 0, 0, 5] = np.nan
    lower(problem, Schedule(tile(problem, host)), host).run(operands)
    channel = operands["C"][0, :, :, 5]
    assert np.isfinite(channel[0]).all() and np.isfinite(channel[:, 0]).all()
    assert np.isnan(channel[1:, 1:]).all()


matmuls_of_few_rows = st.builds(
    Matmul, batch=st.sampled_from([1, 1, 2]),
    m=st.sampled_from([1, 2, 7, 8, 9, 19, MOST_SHARING_ROWS + 5]),
    n=st.sampled_from([1, 15, 64, 65, 131, 211, 410]), k=st.sampled_from([23, 43, 61, 103, 133]),
    dtype=dtypes, bias=st.booleans(), init=inits, epilogue=st.sampled_from(["none", "relu"]),
)  # fmt: skip


@cases(50)
@given(st.data())
def test_any_schedule_of_few_rows_and_of_more_is_right(data: st.DataObject) -> None:
    problem, target = data.draw(matmuls_of_few_rows), data.draw(st.sampled_from(TARGETS))
    assume(can_be_skinny(problem, target, problem.m))
    schedule = data.draw(in_any_order(problem, data.draw(skinny_schedules(problem, target))))
    check(problem, schedule, target, data.draw(st.integers(0, 9)))
