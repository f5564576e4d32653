"""Kernels of bytes and quantised weights, and those of matrix tiles, emulated on any machine."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llvmlite import ir

from tests.cases import cases, some
from tests.kernels.emulated_tiles import ALDER_LAKE, emulated_for, emulated_tiles
from tests.kernels.native_case import TARGETS, check
from tests.kernels.strategies import (
    can_tile,
    convolutions,
    macro_kernels,
    matmuls,
    quantised,
    schedules,
)
from tilewise.kernels.errors import LoweringError, ProblemError, ScheduleError
from tilewise.kernels.instructions import Form, instructions
from tilewise.kernels.native import lower
from tilewise.kernels.native.assembly import inner_loop
from tilewise.kernels.native.export.module import export
from tilewise.kernels.native.microkernels.matrix_tiles import MatrixTiles
from tilewise.kernels.native.microkernels.matrix_tiles_code import TileRegisters
from tilewise.kernels.native.microkernels.widened_weights import WidenedProduct
from tilewise.kernels.native.plan import plan
from tilewise.kernels.nest import nest_of
from tilewise.kernels.oracle.operands import Array, make_operands, widened
from tilewise.kernels.oracle.reference import compare, reference
from tilewise.kernels.problem import Matmul, parse_problem
from tilewise.kernels.schedule import Schedule, Step, loop_nest
from tilewise.kernels.steps import InstructionChoice, Pack, Register, Skinny, Split, Stream, Tile
from tilewise.kernels.target import Target, detect, machine
from tilewise.kernels.target.machine import described
from tilewise.search.space.space import Space

TILE_OPS = {"bf16": "x86.amx.tdpbf16ps", "f16": "x86.amx.tdpfp16ps", "i8": "x86.amx.tdpbssd"}
FEATURES = ("avx512f", "avx512bw", "fma", "avx2", "amx-tile", "amx-bf16", "amx-fp16", "amx-int8")
SERVER = described("sapphirerapids", FEATURES)
EACH = (*TARGETS, ALDER_LAKE)
needs_amx = pytest.mark.skipif(
    "amx-tile" not in detect().features, reason="this machine has no amx-tile"
)


def schedule_of(dtype: str, rows: int = 32, cols: int = 32, outer: str = "rows") -> Schedule:
    register = Register(rows, cols, "rows" if outer == "rows" else "cols")
    return Schedule((Pack("B"), InstructionChoice(TILE_OPS[dtype]), register))


def tiles_text(
    problem: str, schedule: Schedule, name: str = "full", target: Target = SERVER
) -> str:
    """The IR of one function of the micro-kernel."""
    module = ir.Module("tiles")
    planned = plan(parse_problem(problem), schedule, SERVER)
    planned.kernel.pieces(planned.use)["full"].emit(module)
    return str(module)


@pytest.mark.parametrize(("outer", "streamed"), [("rows", "b"), ("cols", "a")])
def test_the_side_that_streams_leaves_the_first_cache_alone(outer: str, streamed: str) -> None:
    text = tiles_text("matmul:m=64,n=64,k=64,dtype=bf16", schedule_of("bf16", outer=outer))
    once = set(re.findall(r'tileloaddt164"?\(i8 (\d)', text))
    registers = TileRegisters(2, 2)
    of = registers.b if streamed == "b" else registers.a
    assert once == {str(of(0)), str(of(1))}
    assert text.count('call void @"llvm.x86.tdpbf16ps"') == 8, "of a step, and of the last words"
    assert text.count('asm sideeffect "", "v"') == 1, "what keeps the vector units awake"


@pytest.mark.parametrize(("problem", "tile", "message"), [
    ("matmul:m=64,n=64,k=64,dtype=bf16", (48, 32), "8 tile registers hold"),
    ("matmul:m=96,n=64,k=64,dtype=bf16", (96, 16), "8 tile registers hold"),
    ("matmul:m=64,n=64,k=64,dtype=bf16", (20, 32), "no grid of tiles"),
    ("matmul:m=64,n=64,k=64,dtype=bf16,transpose_a", (32, 32), "transposed A"),
])  # fmt: skip
def test_what_tiles_cannot_hold_fails(problem: str, tile: tuple[int, int], message: str) -> None:
    steps = (Pack("B"), Pack("A"), InstructionChoice(TILE_OPS["bf16"]), Register(*tile))
    with pytest.raises(LoweringError, match=message):
        plan(parse_problem(problem), Schedule(steps), SERVER)


def test_exported_modules_ask_for_permission_where_they_use_tiles() -> None:
    problem = parse_problem("matmul:m=64,n=64,k=64,dtype=bf16")
    assert "_may_use_tiles():" in export(problem, schedule_of("bf16"), SERVER)
    plain = Schedule((Pack("B"), Register(4, 32)))
    assert "_may_use_tiles" not in export(parse_problem("matmul:m=64,n=64,k=64,dtype=f32"), plain,
                                          SERVER)  # fmt: skip


def test_a_process_that_is_refused_has_no_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("amx-tile", "avx512f")
    monkeypatch.setattr(machine, "this_processor", lambda: machine.Processor("", "x", names))
    for is_permitted in (True, False):
        monkeypatch.setattr(machine, "may_use_tiles", lambda answer=is_permitted: answer)
        assert ("amx-tile" in machine._detected.__wrapped__().features) is is_permitted


@pytest.mark.parametrize("target", [SERVER, pytest.param(detect(), marks=needs_amx)])
@cases(40, short=16)
@given(data=st.data())
def test_any_schedule_of_tiles_is_right_between_guard_pages(data, target) -> None:
    plain = (matmuls | convolutions()).filter(lambda p: p.dtype in (*TILE_OPS, "u8", "f32"))
    tiled = plain.map(
        lambda p: replace(p, accuracy="bf16x3") if p.dtype == "f32" and not p.b else p
    )
    problem = data.draw(tiled.filter(lambda p: can_tile(p, target)))
    schedule = data.draw(macro_kernels(problem, target, Form.TILES))
    kind = WidenedProduct if problem.quantised_weights else MatrixTiles
    assert type(plan(problem, schedule, target).kernel) is kind
    with tiles() if target is SERVER else nullcontext():
        check(problem, schedule, target, data.draw(st.integers(0, 9)))


IN_PARTS = "matmul:m=40,n=50,k=70,dtype=f32"
PARTS = Schedule((Pack("A"), Pack("B"), InstructionChoice("x86.amx.bf16x3"), Register(32, 32)))


def test_products_of_bf16_are_for_problems_that_ask_for_them() -> None:
    for accuracy in ("standard", "strict"):
        with pytest.raises(ScheduleError, match="step 'instruction"):
            plan(parse_problem(f"{IN_PARTS},accuracy={accuracy}"), PARTS, SERVER)
    with pytest.raises(ProblemError, match="accuracy=bf16x3 is for dtype=f32, not bf16"):
        parse_problem("matmul:m=4,n=4,k=4,dtype=bf16,accuracy=bf16x3")


@needs_amx
def test_infinities_and_nans_stay_in_their_rows_in_parts() -> None:
    problem = parse_problem(f"{IN_PARTS},accuracy=bf16x3")
    operands = make_operands(problem, 1)
    operands["A"][3, 5] = np.inf
    operands["A"][4, 6] = np.nan
    lower(problem, PARTS, detect()).bind(operands)()
    assert not np.isfinite(operands["C"][3:5]).any()
    assert np.isfinite(np.delete(operands["C"], [3, 4], axis=0)).all()


@needs_amx
@pytest.mark.parametrize(("text", "schedule", "products", "loads"), [
    (f"{IN_PARTS},accuracy=bf16x3", PARTS, 12, 10),  # three products of each tile
    ("matmul:m=256,n=256,k=1024,dtype=bf16", schedule_of("bf16"), 4, 4),
])  # fmt: skip
def test_products_of_tiles_bind_the_inner_loop(text, schedule, products, loads) -> None:
    found = inner_loop(parse_problem(text), schedule, detect())
    counts = found.counts
    assert (counts.multiply_adds, counts.tile_loads, found.steps) == (products, loads, 1)
    assert found.bound is not None and found.bound.binds == "multiply-adds"
    assert found.bound.cycles["multiply-adds"] == products * 16


@pytest.mark.timeout(900)
@cases(120, short=24)
@given(st.data())
def test_random_problems_of_bytes_are_exact(data: st.DataObject) -> None:
    problem, target = data.draw(quantised), data.draw(st.sampled_from(EACH))
    with emulated_for(target):
        check(problem, data.draw(schedules(problem, target)), target, data.draw(st.integers(0, 9)))


@pytest.mark.parametrize("weights", ["variable", "constant"])
def test_a_bound_kernel_takes_new_zero_points(weights: str, host: Target) -> None:
    text = f"matmul:m=9,n=40,k=33,dtype=u8,b=i8,zero=ab,weights={weights}"
    problem, schedule = parse_problem(text), Schedule((Pack("B"), Pack("A"), Register(4, 16)))
    operands = make_operands(problem, 1)
    call = lower(problem, schedule, host).bind(operands)
    for zero_a, zero_b in ((0, 0), (255, -128), (0, 127)):
        operands["zero_a"][...], operands["zero_b"][...] = zero_a, zero_b
        call()
        np.testing.assert_array_equal(operands["C"], reference(problem, operands).value)


def test_zero_points_at_their_limits_stand_for_padding(host: Target) -> None:
    text = "conv2d:n=1,h=6,w=7,ci=5,co=20,kh=3,kw=3,pad=2,dtype=u8,zero=ab,init=accumulate"
    steps = (Pack("B"), Tile("n", 1), Pack("A"), Register(4, 16))
    problem = parse_problem(text)
    operands = make_operands(problem, 2)
    for zero_a, zero_b in ((0, 255), (255, 0), (255, 255)):
        operands["zero_a"][...], operands["zero_b"][...] = zero_a, zero_b
        expected = reference(problem, operands).value
        lower(problem, Schedule(steps), host).run(operands)
        np.testing.assert_array_equal(operands["C"], expected)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("keys", ["u8,b=i8", "i8", "u8", "i8,b=u8"])
def test_a_zero_point_of_a_leaves_bytes_as_they_are(keys: str, first: int, host: Target) -> None:
    """What pads the image is the zero point's byte, wherever in a word of 8 bytes it is."""
    text = f"conv2d:n=1,h=6,w=7,ci=5,co=20,kh=3,kw=3,pad=2,dtype={keys},zero=a"
    problem = parse_problem(text)
    operands = make_operands(problem, 2)
    operands["zero_a"] = np.full(2, 99, np.int32)[first : first + 1]
    steps = (Pack("B"), Tile("n", 1), Pack("A"))
    for one in instructions(nest_of(problem).factors, host, Form.OUTER_PRODUCT):
        kernel = Schedule((*steps, InstructionChoice(one.name), Register(4, 16)))
        for zero in (0, 127, -128 if keys.startswith("i8") else 255):
            operands["zero_a"][...] = zero
            lower(problem, kernel, host).run(operands)
            np.testing.assert_array_equal(operands["C"], reference(problem, operands).value)


@pytest.mark.parametrize("steps", [
    (Stream("k", 8), Register(3, 32, "rows"), Skinny("n")), (Register(2, 2), Split("k", 16)),
])  # fmt: skip
def test_reductions_that_read_in_place_have_no_zero_points(steps: tuple[Step, ...]) -> None:
    problem = parse_problem("matmul:m=9,n=64,k=33,dtype=u8,zero=a")
    with pytest.raises(ScheduleError, match="only packs subtract zero points; drop the step"):
        lower(problem, Schedule(steps), TARGETS[0])
    with pytest.raises(ScheduleError, match="drop the steps skinny and split"):
        loop_nest(problem_of(KINDS[3]), Schedule(steps))


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


@pytest.mark.parametrize(("at", "target"), some(product(range(len(KINDS)), EACH), of=3))
def test_every_kind_is_right_on_every_target(at: int, target: Target) -> None:
    problem, lanes = problem_of(KINDS[at]), target.lanes("f32")
    block = problem.quantised_weights.block if problem.quantised_weights else 0
    ways: list[tuple[Step, ...]] = [
        (*PACKS, Register(min(3, problem.m), 2 * lanes)),
        (Stream("k", block), *PACKS, Register(2, lanes, "rows")),
        (Tile("n", 2 * lanes), Pack("B"), Tile("m", 4), Pack("A"), Register(2, lanes)),
    ]
    with emulated_for(target):
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


@pytest.mark.parametrize("size", [0, 1e-44, 1e-36, 1e-30, 1e30])
def test_magnitudes_near_the_ends_of_f32_are_right(size: float, host: Target) -> None:
    problem = problem_of("m=2,n=48,k=64,dtype=f32,b=i8,group=32")
    operands = make_operands(problem, 10)
    operands["A"][...] = (operands["A"].astype(np.float64) * size).astype(np.float32)
    expected = reference(problem, operands).value
    found = result(problem, operands, host).astype(np.float64)
    atol = max(1e-5 * np.abs(expected).max(), 1e-32 * (size > 0))
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def test_the_tolerance_of_dynamic_i8_sees_a_group_that_is_left_out() -> None:
    problem = problem_of("m=2,n=64,k=4096,dtype=f32,b=i4,group=32,a=dynamic_i8")
    operands = make_operands(problem, 11)
    expected = reference(problem, operands)
    operands["A"][:, -32:] = 0
    without = reference(problem, operands).value
    assert np.greater(*compare(problem, without.astype(np.float32), expected))


@pytest.mark.parametrize(("a", "keys"), [(-1, ",a=dynamic_i8"), (0.5, "")])
def test_sums_of_the_largest_slices_and_codes_are_exact(a: float, keys: str, host: Target) -> None:
    problem = problem_of(f"m=1,n=32,k=128,dtype=f32,b=i4,group=128{keys}")
    operands = make_operands(problem, 1)
    operands["A"][...], operands["B"][...], operands["scale_b"][...] = a, 7, 1
    operands["A"][0, 0] = 127 if a > 0 else a
    expected = np.full((1, 32), 7 * operands["A"].sum())
    np.testing.assert_array_equal(result(problem, operands, host), expected)


@pytest.mark.parametrize(("b", "target"), product(("i4", "i8"), (TARGETS[0], SERVER)))
def test_every_code_less_every_zero_point_is_exact(b: str, target: Target) -> None:
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
    np.testing.assert_array_equal(result(problem, operands, target), expected)


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
    with pytest.raises(ScheduleError, match=r"of weights of 4 bits has .*vpdpbusd.*tdpbf16ps"):
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
