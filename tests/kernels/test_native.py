from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels.errors import LoweringError, ScheduleError
from kernels.loopnest import build, count
from kernels.native import lower
from kernels.native.microkernel import MicroKernelSpec
from kernels.native.plan import plan
from kernels.problem import DTYPES, Matmul, Problem, parse_problem
from kernels.problem.iteration import iteration_space
from kernels.reference import compare, make_operands, reference, to_bf16
from kernels.schedule import Pack, Register, Schedule, Split, Step, Stream, Tile, Unroll
from kernels.target import Target, detect
from tests.kernels.guarded import GuardedArray
from tests.kernels.strategies import can_split, matmuls, problems, schedules

AVX2 = frozenset({"avx2", "fma"})


def lowered_targets() -> list[Target]:
    """This machine, and the same with fewer features handed to the code generator."""
    host = detect()
    narrow = Target(host.cpu, features=AVX2, vector_bytes=32, vector_registers=16)
    portable = Target(host.cpu, features=frozenset(), vector_bytes=16, vector_registers=16)
    plain = replace(host, features=host.features - {"avx512bf16", "avx512vnni"})
    return [host, plain, narrow, portable]


TARGETS = lowered_targets()


def check(problem: Problem, schedule: Schedule, target: Target, seed: int) -> None:
    """The result is right, nothing outside the operands is touched, and the counts hold."""
    operands = make_operands(problem, seed)
    expected = reference(problem, operands)
    guarded = {name: GuardedArray(array) for name, array in operands.items()}
    executable = lower(problem, schedule, target)
    counts = executable.counted_run({name: g.array for name, g in guarded.items()})
    error, tolerance = compare(problem, guarded["C"].array, expected)
    assert error <= tolerance, (problem, schedule)
    assert all(g.is_intact() for g in guarded.values())
    for name in ("A", "B"):
        assert np.array_equal(guarded[name].array, operands[name])
    meant = count(problem, build(problem, schedule))
    assert counts["micro_kernels"] == meant.micro_kernels
    assert {k: v for k, v in counts.items() if k in meant.packs} == meant.packs


@pytest.mark.timeout(900)  # without cached drivers most of it is compilation
@settings(
    max_examples=320, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(st.data())
def test_any_problem_with_any_legal_schedule(data: st.DataObject) -> None:
    problem = data.draw(problems)
    target = data.draw(st.sampled_from(TARGETS))
    schedule = data.draw(schedules(problem, target))
    check(problem, schedule, target, data.draw(st.integers(0, 1000)))


@pytest.mark.timeout(900)
@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(st.data())
def test_any_matmul_with_any_split_of_its_reduction(data: st.DataObject) -> None:
    problem = data.draw(matmuls.filter(can_split))
    target = data.draw(st.sampled_from(TARGETS))
    schedule = data.draw(schedules(problem, target, splits=True))
    check(problem, schedule, target, data.draw(st.integers(0, 1000)))


def inner_products(target: Target, dtype: str, rows: int, cols: int, vectors: int) -> Schedule:
    """Everything read in place, with two vectors in an iteration."""
    lanes = vectors * target.lanes(dtype)
    return Schedule((Register(rows, cols), Split("k", lanes), Unroll(2)))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("vectors", [1, 8])
@pytest.mark.parametrize("k", [1, 31, 128, 523])
def test_matrix_times_vector(dtype: str, k: int, vectors: int, target: Target) -> None:
    problem = parse_problem(f"matmul:m=19,n=1,k={k},dtype={dtype},bias,epilogue=relu")
    check(problem, inner_products(target, dtype, 8, 1, vectors), target, 4)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("a", ["", ",transpose_a"])
def test_vector_times_transposed_matrix_in_place(dtype: str, a: str, host: Target) -> None:
    problem = parse_problem(f"matmul:m=1,n=37,k=131,dtype={dtype},transpose_b,bias{a}")
    for vectors in (1, 8):
        check(problem, inner_products(host, dtype, 1, 8, vectors), host, 5)


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("target", TARGETS)
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


def test_i8_extremes_are_exact_in_pairs(host: Target) -> None:
    problem = parse_problem("matmul:m=7,n=2,k=1001,dtype=i8,transpose_b")
    operands = make_operands(problem, 0)
    operands["A"][...] = -128
    operands["B"][...] = -128
    lower(problem, inner_products(host, "i8", 4, 2, 1), host).run(operands)
    assert (operands["C"] == 128 * 128 * 1001).all()


@pytest.mark.timeout(900)
@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_nan_and_infinity_come_out_as_ieee_arithmetic_has_it(data: st.DataObject) -> None:
    problem = data.draw(problems.filter(lambda p: p.element.is_float))
    target = data.draw(st.sampled_from(TARGETS))
    operands = make_operands(problem, data.draw(st.integers(0, 1000)))
    for name in ("A", "B"):
        for _ in range(data.draw(st.integers(0, 2))):
            value = np.array(data.draw(st.sampled_from([np.nan, np.inf, -np.inf])), np.float32)
            at = data.draw(st.integers(0, operands[name].size - 1))
            operands[name].flat[at] = to_bf16(value) if problem.element.name == "bf16" else value
    with np.errstate(invalid="ignore"):
        expected = reference(problem, operands)
    lower(problem, data.draw(schedules(problem, target)), target).run(operands)
    result = operands["C"].astype(np.float64)
    assert np.array_equal(np.isnan(result), np.isnan(expected.value))
    infinite = np.isinf(expected.value)
    assert np.array_equal(result[infinite], expected.value[infinite])
    finite = np.isfinite(expected.value) & np.isfinite(expected.tolerance)
    error = np.abs(result[finite] - expected.value[finite])
    assert (error <= expected.tolerance[finite]).all()


ONES = Matmul(m=1, n=1, k=1, dtype="f32")
WHOLE = Schedule((Pack("B"), Pack("A"), Register(4, 16), Unroll(4)))


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("matmul:m=13,n=150,k=70,dtype=f32", (Tile("n", 128), Stream("k", 40), Pack("B"))),
        ("matmul:m=13,n=150,k=70,dtype=i32", (Pack("B"), Tile("m", 8))),
        (
            "conv2d:n=2,h=6,w=9,ci=10,co=70,kh=3,kw=2,dtype=f64",
            (Pack("B"), Tile("n", 1), Tile("oh", 2)),
        ),
    ],
)
def test_the_first_tile_of_rows_leaves_every_panel_packed(
    text: str, steps: tuple[Step, ...], host: Target
) -> None:
    problem = parse_problem(text)
    lanes = host.lanes(problem.element.name)
    schedule = Schedule((*steps, Register(4, 2 * lanes), Unroll(3)))
    executable = lower(problem, schedule, host)
    operands = make_operands(problem, 3)
    sizes = executable.scratch_bytes
    scratch = {name: np.full(size + 64, 0xA7, np.uint8) for name, size in sizes.items()}
    aligned = {name: raw[-raw.ctypes.data % 64 :][: sizes[name]] for name, raw in scratch.items()}
    executable.bind(operands, aligned)()
    (last,) = [c for c in build(problem, schedule).copies if c.operand == "B"]
    panels, taps, _, cols = last.shape
    rows = operands["B"].reshape(taps, -1, operands["B"].shape[-1])
    depth = schedule.depth or rows.shape[1]
    start = (rows.shape[1] - 1) // depth * depth  # of the last chunk, which is what is left
    first = (rows.shape[2] - 1) // (panels * cols) * panels * cols
    block = rows[:, start:, first:]
    padded = np.zeros((taps, block.shape[1], -(-block.shape[2] // cols) * cols), rows.dtype)
    padded[:, :, : block.shape[2]] = block
    packed = padded.reshape(taps, block.shape[1], -1, cols).transpose(2, 0, 1, 3)
    found = aligned["B"].view(rows.dtype)[: packed.size].reshape(packed.shape)
    assert np.array_equal(found, packed)


@pytest.mark.parametrize(
    ("text", "packs", "is_filled"),
    [
        ("matmul:m=64,n=64,k=64,dtype=f32", True, True),
        ("matmul:m=64,n=64,k=64,dtype=f32", False, False),
        ("matmul:m=64,n=64,k=64,dtype=f32,transpose_b", True, False),
        ("matmul:m=64,n=64,k=64,dtype=f32,weights=constant", True, False),
        ("matmul:m=64,n=64,k=64,dtype=bf16", True, False),
        ("conv2d:n=1,h=8,w=8,ci=4,co=64,kh=3,kw=3,layout=nchw_fchw,dtype=f32", True, False),
    ],
)
def test_panels_are_filled_in_passing_where_rows_of_b_lie_as_they_are_packed(
    text: str, packs: bool, is_filled: bool, host: Target
) -> None:
    problem = parse_problem(text)
    lead = [Tile(dim, 1) for dim in iteration_space(problem).lead]
    steps = (*lead, *([Pack("B")] if packs else []), Register(4, host.lanes(problem.element.name)))
    spec = plan(problem, Schedule(steps), host).spec
    assert isinstance(spec, MicroKernelSpec)
    assert (spec.filled_row > 0) == is_filled


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_size_one(dtype: str, host: Target) -> None:
    check(Matmul(m=1, n=1, k=1, dtype=dtype), WHOLE, host, 1)
    if dtype in ("f32", "f64", "i32"):
        check(Matmul(m=1, n=1, k=1, dtype=dtype), Schedule((Register(1, 16),)), host, 1)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("a", ["", ",transpose_a"])
@pytest.mark.parametrize("b", ["", ",transpose_b"])
def test_every_dtype_and_transpose_over_chunks_and_odd_edges(
    dtype: str, a: str, b: str, host: Target
) -> None:
    problem = parse_problem(f"matmul:m=53,n=131,k=107,dtype={dtype}{a}{b},bias,epilogue=relu")
    schedule = Schedule(
        (
            Tile("n", 96),
            Stream("k", 36),
            Pack("B"),
            Tile("m", 20),
            Pack("A"),
            Register(5, 48),
            Unroll(2),
        )
    )
    check(problem, schedule, host, 11)


def test_bf16_reads_a_in_place_where_pairs_fit(host: Target) -> None:
    problem = parse_problem("matmul:m=29,n=70,k=64,dtype=bf16")
    check(problem, Schedule((Stream("k", 32), Pack("B"), Register(4, 32), Unroll(4))), host, 2)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_bf16_padding_does_not_spread_nan(value: float, host: Target) -> None:
    problem = parse_problem("matmul:m=3,n=5,k=3,dtype=bf16")
    operands = make_operands(problem, 0)
    operands["B"][2, 4] = to_bf16(np.array([value], np.float32))[0]
    lower(problem, WHOLE, host).run(operands)
    assert not np.isfinite(operands["C"][:, 4]).any()
    assert np.isfinite(operands["C"][:, :4]).all()


def test_i8_extremes_are_exact(host: Target) -> None:
    problem = parse_problem("matmul:m=7,n=19,k=1001,dtype=i8")
    operands = make_operands(problem, 0)
    operands["A"][...] = -128
    operands["B"][...] = -128
    lower(problem, WHOLE, host).run(operands)
    assert (operands["C"] == 128 * 128 * 1001).all()


def test_odd_sizes_through_the_whole_goto_nest(host: Target) -> None:
    problem = parse_problem("matmul:m=251,n=509,k=127,dtype=f32,bias,epilogue=relu")
    schedule = Schedule(
        (
            Tile("n", 192),
            Stream("k", 50),
            Pack("B"),
            Tile("m", 40),
            Pack("A"),
            Register(8, 48),
            Unroll(4),
        )
    )
    check(problem, schedule, host, 3)


def test_first_layer_folds_width_and_channels_into_one_reduction(host: Target) -> None:
    problem = parse_problem("conv2d:n=1,h=23,w=29,ci=3,co=20,kh=7,kw=7,stride=2,pad=3,dtype=f32")
    schedule = Schedule((Pack("B"), Tile("n", 1), Tile("oh", 4), Pack("A"), Register(6, 32)))
    check(problem, schedule, host, 5)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_reach_exactly_what_they_touch(value: float, host: Target) -> None:
    problem = parse_problem("matmul:m=9,n=21,k=5,dtype=f32,epilogue=relu")
    operands = make_operands(problem, 0)
    operands["A"][3, 2] = value
    with np.errstate(invalid="ignore"):
        expected = np.maximum(operands["A"] @ operands["B"], 0)
    lower(problem, WHOLE, host).run(operands)
    np.testing.assert_allclose(operands["C"], expected, rtol=1e-4)
    assert np.isfinite(np.delete(operands["C"], 3, axis=0)).all()


def test_padding_of_an_image_full_of_infinity_stays_zero(host: Target) -> None:
    problem = parse_problem("conv2d:n=1,h=3,w=3,ci=2,co=2,kh=3,kw=3,pad=1,dtype=f32")
    operands = make_operands(problem, 0)
    operands["A"][...] = np.inf
    operands["B"][...] = 1.0
    schedule = Schedule((Pack("B"), Tile("n", 1), Pack("A"), Register(2, 16)))
    lower(problem, schedule, host).run(operands)
    assert np.isposinf(operands["C"]).all()


def test_constant_weights_are_packed_when_bound_and_not_when_run(host: Target) -> None:
    problem = parse_problem("matmul:m=20,n=70,k=33,dtype=f32,weights=constant")
    operands = make_operands(problem, 0)
    expected = reference(problem, operands)
    schedule = Schedule((Tile("n", 32), Stream("k", 17), Pack("B"), Register(4, 32)))
    call = lower(problem, schedule, host).bind(operands)
    operands["B"][...] = np.nan
    call()
    error, tolerance = compare(problem, operands["C"], expected)
    assert error <= tolerance


@pytest.mark.parametrize(
    ("text", "lead"),
    [
        ("matmul:batch=2,m=17,n=19,k=23,dtype=f32,weights=constant", "batch"),
        ("matmul:batch=3,m=5,n=35,k=23,dtype=bf16,transpose_b,weights=constant", "batch"),
        ("matmul:batch=2,m=5,n=35,k=24,dtype=i8,weights=constant", "batch"),
        ("conv2d:n=2,h=9,w=9,ci=8,co=38,kh=3,kw=3,groups=2,dtype=bf16,weights=constant", "g"),
    ],
)
@pytest.mark.parametrize("depth", [0, 4])
def test_constant_weights_of_batches_and_groups(
    text: str, lead: str, depth: int, host: Target
) -> None:
    problem = parse_problem(text)
    stream = "k" if lead == "batch" else "ci"
    steps = [Tile(lead, 1), *([Stream(stream, depth)] if depth else []), Pack("B")]
    image = [Tile("n", 1)] if lead == "g" else []
    check(problem, Schedule((*steps, *image, Pack("A"), Register(3, 16))), host, 8)


def test_depthwise(host: Target) -> None:
    problem = parse_problem("conv2d:n=1,h=9,w=8,ci=20,co=20,kh=3,kw=3,pad=1,groups=20,dtype=f32")
    steps = (Tile("g", 1), Pack("B"), Tile("n", 1), Pack("A"), Register(4, 16))
    check(problem, Schedule(steps), host, 6)


NCHW = "conv2d:n=2,h=9,w=11,ci=6,co=10,kh=3,kw=2,pad=1,groups=2,layout=nchw_fchw"


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"{t.vector_bytes}B{len(t.features)}")
@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_nchw_chunks_that_split_a_channels_taps(dtype: str, stride: int, target: Target) -> None:
    problem = parse_problem(f"{NCHW},stride={stride},dtype={dtype},bias,epilogue=relu")
    lanes = target.lanes(dtype)
    steps = (
        Tile("g", 1),
        Stream("k", 8),  # of 18, 6 taps to a channel
        Pack("A"),  # which no image moves
        Tile("n", 1),
        Tile("p", 4 * lanes),
        Pack("B"),
        Register(3, 2 * lanes),
        Unroll(2),
    )
    check(problem, Schedule(steps), target, 12)


def test_nchw_bias_of_an_edge_tile_is_read_by_row(host: Target) -> None:
    problem = parse_problem(
        "conv2d:n=1,h=3,w=3,ci=4,co=7,kh=1,kw=1,layout=nchw_fchw,dtype=f32,bias"
    )
    check(problem, Schedule((Register(5, 16),)), host, 4)  # rows 5 to 9, of which 7 exist
    operands = make_operands(problem, 0)
    operands["A"][...] = 0
    lower(problem, Schedule((Register(5, 16),)), host).run(operands)
    assert (operands["C"] == operands["bias"][:, None, None]).all()


@pytest.mark.parametrize("width", [1, 2, 5, 16, 47])
def test_nchw_panels_over_several_lines_and_part_of_one(width: int, host: Target) -> None:
    problem = parse_problem(
        f"conv2d:n=2,h=13,w={width},ci=3,co=4,kh=3,kw=1,pad=1,layout=nchw_fchw,dtype=f32"
    )
    check(problem, Schedule((Tile("n", 1), Pack("B"), Register(4, 48))), host, 9)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nchw_padding_and_lanes_without_a_pixel_are_zero(
    value: float, stride: int, dtype: str, host: Target
) -> None:
    """The image next to the padding holds `value`; pixels that do not read it stay finite."""
    problem = parse_problem(
        f"conv2d:n=1,h=7,w=9,ci=3,co=5,kh=3,kw=3,pad=2,stride={stride},layout=nchw_fchw,"
        f"dtype={dtype}"
    )
    operands = make_operands(problem, 0)
    bad = np.array([value], np.float32)
    operands["A"][:, :, :, [0, -1]] = to_bf16(bad)[0] if dtype == "bf16" else bad[0]
    reads = np.zeros((7 + 4, 9 + 4), bool)
    reads[2:-2, [2, -3]] = True
    windows = np.lib.stride_tricks.sliding_window_view(reads, (3, 3))[::stride, ::stride]
    lanes = host.lanes(dtype)
    for scratch in (0x00, 0xFF):  # what a panel holds before it is packed; 0xFF is a NaN
        executable = lower(problem, Schedule((Pack("B"), Pack("A"), Register(4, lanes))), host)
        held = {
            name: np.full(size + 64, scratch, np.uint8)
            for name, size in executable.scratch_bytes.items()
        }
        executable.bind(operands, held)()
        assert (np.isfinite(operands["C"]) == ~windows.any((2, 3))).all()


def test_nchw_constant_weights_change_nothing(host: Target) -> None:
    for dtype in ("f32", "i8"):
        problem = parse_problem(f"{NCHW},dtype={dtype},weights=constant")
        steps = (Tile("g", 1), Tile("n", 1), Pack("B"), Pack("A"), Register(3, 16))
        check(problem, Schedule(steps), host, 2)


def test_nchw_without_taps_reads_the_image_in_place(host: Target) -> None:
    problem = parse_problem("conv2d:n=2,h=5,w=7,ci=9,co=11,kh=1,kw=1,layout=nchw_fchw,dtype=f32")
    check(problem, Schedule((Tile("n", 1), Stream("k", 4), Register(4, 32))), host, 7)


def test_nchw_depthwise(host: Target) -> None:
    problem = parse_problem(
        "conv2d:n=1,h=9,w=8,ci=20,co=20,kh=3,kw=3,pad=1,groups=20,layout=nchw_fchw,dtype=f32"
    )
    check(problem, Schedule((Tile("g", 1), Pack("B"), Register(1, 48))), host, 6)


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
        lower(parse_problem("matmul:m=4,n=4,k=8,dtype=bf16"), odd, host)
    with pytest.raises(LoweringError, match="cols=17 is not a multiple"):
        lower(ONES, Schedule((Register(1, 17),)), host)
    with pytest.raises(ScheduleError):
        lower(ONES, Schedule(()), host)
    with pytest.raises(LoweringError, match="lanes=17 is not a multiple"):
        lower(ONES, Schedule((Register(1, 1), Split("k", 17))), host)
    split = inner_products(host, "f32", 2, 2, 1)
    with pytest.raises(LoweringError, match="add the step pack operand=B"):
        lower(parse_problem("matmul:m=4,n=4,k=4,dtype=f32"), split, host)
    with pytest.raises(LoweringError, match="drop the step split"):
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
