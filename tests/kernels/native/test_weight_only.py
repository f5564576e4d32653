"""Products with quantised weights: right on every target, and rounded block by block as told."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases, some
from tests.kernels.emulated_tiles import emulated_tiles
from tests.kernels.native.test_matrix_tiles import SERVER
from tests.kernels.native_case import TARGETS, check
from tests.kernels.strategies import macro_kernels
from tilewise.kernels.arithmetic import arithmetic_of
from tilewise.kernels.errors import LoweringError, ScheduleError
from tilewise.kernels.instructions import Form
from tilewise.kernels.native import lower
from tilewise.kernels.native.plan import plan
from tilewise.kernels.oracle.operands import Array, make_operands, widened
from tilewise.kernels.oracle.reference import compare, reference
from tilewise.kernels.problem import Matmul, parse_problem
from tilewise.kernels.schedule import (
    InstructionChoice,
    Pack,
    Register,
    Schedule,
    Split,
    Step,
    Stream,
    Sweep,
    Tile,
    loop_nest,
)
from tilewise.kernels.target import Target
from tilewise.kernels.target.machine import described
from tilewise.search.space.space import Space

PACKS = (Pack("B"), Pack("A"))
KINDS = [
    "m=1,n=130,k=331,dtype=bf16,b=i4,group=32,scale=f16",
    "m=7,n=77,k=203,dtype=f32,b=i4,group=128,scale=bf16,zero_b=u4,transpose_b",
    "m=5,n=33,k=331,dtype=bf16,b=i8,group=k,zero_b=u8,bias,epilogue=relu",
    "m=3,n=70,k=96,dtype=f32,b=i8,group=256,init=accumulate,epilogue=relu6",
    "m=17,n=65,k=70,dtype=bf16,b=i4,group=16,a=dynamic_i8,out=bf16,epilogue=gelu,add",
    "m=2,n=40,k=17,dtype=f32,b=i8,group=64,scale=bf16,zero_b=u8,a=dynamic_i8,transpose_b",
]
OP = "x86.amx.tdpbf16ps"
ENDS = (InstructionChoice(OP), Register(16, 16))


def problem_of(text: str) -> Matmul:
    """The problem of these keys."""
    problem = parse_problem(f"matmul:{text},weights=constant")
    assert isinstance(problem, Matmul)
    return problem


@contextmanager
def tiles() -> Iterator[None]:
    """Matrix tiles without a complaint; emulated, so that they run on any machine."""
    with emulated_tiles() as complaints:
        yield
    assert complaints == []


@pytest.mark.parametrize(("at", "target"), some(product(range(len(KINDS)), TARGETS), of=3))
def test_every_kind_is_right_on_every_target(at: int, target: Target) -> None:
    problem, lanes = problem_of(KINDS[at]), target.lanes("f32")
    block = problem.quantised_weights.block if problem.quantised_weights else 0
    ways: list[tuple[Step, ...]] = [
        (*PACKS, Register(min(3, problem.m), 2 * lanes)),
        (Stream("k", block), *PACKS, Register(2, lanes, "rows")),
        (Tile("n", 2 * lanes), Pack("B"), Tile("m", 4), Pack("A"), Register(2, lanes)),
    ]
    check(problem, Schedule(ways[at % len(ways)]), target, at)


@pytest.mark.parametrize("at", range(len(KINDS)))
def test_every_kind_is_right_by_matrix_tiles(at: int) -> None:
    """With columns outside and rows outside, so that a panel is widened once and for each call."""
    by_rows = (InstructionChoice(OP), Register(16, 16, "rows"))
    steps = [(*PACKS, *ENDS), (Tile("n", 32), Pack("B"), Tile("m", 16), Pack("A"), *by_rows)]
    with tiles():
        check(problem_of(KINDS[at]), Schedule(steps[at % 2]), SERVER, at)


@pytest.mark.parametrize("blocks", [3, 4, 5, 9])
def test_tiles_of_sums_take_turns_over_any_number_of_blocks(blocks: int) -> None:
    problem = problem_of(f"m=18,n=20,k={32 * blocks},dtype=bf16,b=i4,group=32,zero_b=u4")
    with tiles():
        check(problem, Schedule((*PACKS, *ENDS)), SERVER, 0)
        if blocks > 4:
            check(problem, Schedule((Stream("k", 128), *PACKS, *ENDS)), SERVER, 1)


@pytest.mark.full
@cases(12)
@given(st.data())
def test_any_schedule_of_matrix_tiles_is_right(data: st.DataObject) -> None:
    problem = problem_of(data.draw(st.sampled_from(KINDS)))
    schedule = data.draw(macro_kernels(problem, SERVER, Form.TILES))
    with tiles():
        check(problem, schedule, SERVER, data.draw(st.integers(0, 9)))


@pytest.mark.parametrize(
    "steps",
    [(Pack("B"), Register(2, 1), Split("k", 32)), (Stream("k", 32), Register(1, 32), Sweep("n"))],
    ids=["split", "sweep"],
)
def test_sums_that_are_split_or_swept_are_refused(steps: tuple[Step, ...]) -> None:
    with pytest.raises(ScheduleError, match="drop the steps sweep and split"):
        loop_nest(problem_of(KINDS[0]), Schedule(steps))


def result(problem: Matmul, operands: dict[str, Array], target: Target) -> Array:
    """What a kernel computes, on the server by matrix tiles."""
    ends = ENDS if target is SERVER else (Register(min(2, problem.m), 2 * target.lanes("f32")),)
    with tiles() if target is SERVER else nullcontext():
        lower(problem, Schedule((*PACKS, *ends)), target).run(operands)
    return operands["C"]


def test_dynamic_i8_is_the_product_of_bytes_with_a_scale_for_each_block(host: Target) -> None:
    problem = problem_of("m=4,n=48,k=96,dtype=f32,b=i8,group=32,a=dynamic_i8")
    operands = make_operands(problem, 5)
    a = operands["A"].astype(np.float64).reshape(4, 3, 32)
    scale = np.abs(a).max(axis=2, keepdims=True) / 127
    rounded = (np.rint(a / scale) * scale).reshape(4, 96)
    weights = problem.quantised_weights
    assert weights is not None
    wide = {name: widened(x, problem.type_of(name)) for name, x in operands.items()}
    expected = rounded @ weights.dequantised(wide)
    found = result(problem, operands, host)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("a", ["", ",a=dynamic_i8"])
def test_a_large_element_costs_precision_in_its_own_block_alone(a: str, host: Target) -> None:
    problem = problem_of(f"m=1,n=48,k=128,dtype=bf16,b=i8,group=32{a}")
    operands = make_operands(problem, 6)
    exact = reference(problem, operands).value
    first = np.abs(result(problem, operands, host) - exact).max()
    operands["A"][0, 0] = 0x4780  # 65536
    operands["B"][0] = 0
    exact = reference(problem, operands).value
    spoiled = np.abs(result(problem, operands, host) - exact).max()
    assert spoiled > 20 * first
    operands["B"][:32] = 0  # what shares its block
    exact = reference(problem, operands).value
    assert np.abs(result(problem, operands, host) - exact).max() <= 2 * first


def test_rows_of_zeros_give_zero(host: Target) -> None:
    problem = problem_of(KINDS[1])
    operands = make_operands(problem, 7)
    operands["A"][2] = 0
    assert (result(problem, operands, host)[2] == 0).all()


def test_bf16_is_rounded_no_more_than_its_block_allows(host: Target) -> None:
    """Sixteen bits hold a bf16 that is at most 128 times smaller than the largest exactly."""
    problem = problem_of("m=3,n=32,k=64,dtype=bf16,b=i8,group=64")
    operands = make_operands(problem, 8)
    integers = np.random.default_rng(0).integers(-127, 128, (3, 64)).astype(np.float32)
    integers[:, 0] = 127
    operands["A"][...] = (integers.view(np.uint32) >> 16).astype(np.uint16)
    operands["scale_b"][...] = 1
    expected = integers.astype(np.int64) @ operands["B"].astype(np.int64)
    found = result(problem, operands, host)
    np.testing.assert_allclose(found, expected, rtol=3e-7 * 64)


@pytest.mark.parametrize("target", [TARGETS[0], SERVER], ids=["host", "tiles"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_spoils_its_row_alone(value: float, target: Target) -> None:
    problem = problem_of(KINDS[1])
    operands = make_operands(problem, 9)
    expected = reference(problem, operands).value
    operands["A"][3, 150] = value
    found = result(problem, operands, target)
    assert not np.isfinite(found[3]).any()
    others = np.delete(np.arange(problem.m), 3)
    np.testing.assert_allclose(found[others], expected[others], rtol=0, atol=1e-3)


@pytest.mark.parametrize("size", [1e-44, 1e-36, 1e-30, 1e30])
def test_magnitudes_near_the_ends_of_f32_are_right(size: float, host: Target) -> None:
    problem = problem_of("m=2,n=48,k=64,dtype=f32,b=i8,group=32")
    operands = make_operands(problem, 10)
    operands["A"][...] = (operands["A"].astype(np.float64) * size).astype(np.float32)
    expected = reference(problem, operands).value
    found = result(problem, operands, host).astype(np.float64)
    atol = max(1e-5 * np.abs(expected).max(), 1e-32)
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def test_the_tolerance_of_dynamic_i8_sees_a_group_that_is_left_out() -> None:
    problem = problem_of("m=2,n=64,k=4096,dtype=f32,b=i4,group=32,a=dynamic_i8")
    operands = make_operands(problem, 11)
    expected = reference(problem, operands)
    operands["A"][:, -32:] = 0
    without = reference(problem, operands).value
    assert np.greater(*compare(problem, without.astype(np.float32), expected))


@pytest.mark.parametrize("b", ["i4", "i8"])
def test_every_code_less_every_zero_point_is_exact(b: str) -> None:
    """Rows of A have a single 1: C is B less its zero points, times scales that are powers of 2."""
    bits = int(b[1:])
    problem = problem_of(f"m=32,n=256,k=32,dtype=bf16,b={b},group=32,zero_b=u{bits}")
    operands = make_operands(problem, 1)
    codes = np.arange(32 * 256).reshape(32, 256)
    operands["A"][...] = np.eye(32) * 0x3F80
    operands["B"][...] = (codes // 32 + codes % 32) % (1 << bits)
    operands["zero_b"][...] = np.arange(256) % (1 << bits)
    operands["scale_b"][...] = 0.5
    expected = (operands["B"].astype(int) - operands["zero_b"].astype(int)) * 0.5
    np.testing.assert_array_equal(result(problem, operands, SERVER), expected)


def test_an_f32_is_the_sum_of_its_parts() -> None:
    problem = problem_of("m=3,n=16,k=32,dtype=f32,b=i8,group=32")
    operands = make_operands(problem, 2)
    a = operands["A"]
    a[...] = 0
    a[:, 5] = [1 + 2**-23, -(2.0**-90) * (2 - 2**-23), 2.0**100 * 1.7654321]
    operands["B"][...], operands["scale_b"][...] = 1, 1
    np.testing.assert_array_equal(result(problem, operands, SERVER)[:, 0], a[:, 5])


def test_what_cannot_be_is_refused() -> None:
    problem = problem_of(KINDS[0])
    with pytest.raises(LoweringError, match="16x16 at a time, not 32x32"):
        plan(problem, Schedule((*PACKS, InstructionChoice(OP), Register(32, 32))), SERVER)
    with pytest.raises(ScheduleError, match=r"of weights has .*vpdpbusd.*tdpbf16ps"):
        other = InstructionChoice("x86.amx.tdpbssd")
        loop_nest(problem, Schedule((*PACKS, other, Register(16, 16))))
    plain = described("sapphirerapids", ("avx512f", "avx512bw", "fma", "avx2"))
    with pytest.raises(LoweringError, match="tune again for this target"):
        plan(problem, Schedule((*PACKS, *ENDS)), plain)


@pytest.mark.parametrize(("rows", "kinds"), [(1, {"outer", "matrix"}), (64, {"matrix"})])
def test_spaces_have_matrix_tiles(rows: int, kinds: set[str]) -> None:
    problem = problem_of(f"m={rows},n=256,k=256,dtype=bf16,b=i4,group=32")
    space = Space(problem, SERVER)
    assert {tile.kind for tile in space.values("tile")} == kinds
    point = {one.name: one.values[0] for one in space.parameters}
    tile = next(tile for tile in space.values("tile") if tile.kind == "matrix")
    schedule = space.schedule(point | {"tile": tile, "outer": "rows"})
    assert set(ENDS) <= set(getattr(schedule, "steps", ()))


def test_products_of_an_element_are_the_parts_of_a() -> None:
    found = {
        keys: arithmetic_of(problem_of(f"m=2,n=16,k=64,b=i8,group=k,{keys}"), SERVER, Form.TILES)
        for keys in ("dtype=bf16", "dtype=f32", "dtype=f32,a=dynamic_i8")
    }
    assert [getattr(how, "products", 0) for how in found.values()] == [1, 3, 1]
