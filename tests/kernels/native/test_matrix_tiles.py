"""Micro-kernels of matrix tiles: their code on any machine, their results on one with AMX."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llvmlite import ir

from tests.cases import cases
from tests.kernels.emulated_tiles import emulated_tiles
from tests.kernels.native_case import check
from tests.kernels.strategies import can_tile, convolutions, macro_kernels, matmuls
from tilewise.kernels.errors import LoweringError, ProblemError, ScheduleError
from tilewise.kernels.instructions import Form
from tilewise.kernels.native import lower
from tilewise.kernels.native.assembly import inner_loop
from tilewise.kernels.native.export.module import export
from tilewise.kernels.native.microkernels.matrix_tiles import MatrixTiles
from tilewise.kernels.native.microkernels.matrix_tiles_code import TileRegisters
from tilewise.kernels.native.microkernels.widened_weights import WidenedProduct
from tilewise.kernels.native.plan import plan
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.problem import Conv2d, Matmul, parse_problem
from tilewise.kernels.schedule import InstructionChoice, Pack, Register, Schedule
from tilewise.kernels.target import Target, detect, machine
from tilewise.kernels.target.machine import described

OPS = {"bf16": "x86.amx.tdpbf16ps", "i8": "x86.amx.tdpbssd"}
FEATURES = ("avx512f", "avx512bw", "fma", "avx2", "amx-tile", "amx-bf16", "amx-int8")
SERVER = described("sapphirerapids", FEATURES)
needs_amx = pytest.mark.skipif(
    "amx-tile" not in detect().features, reason="this machine has no amx-tile"
)


def schedule_of(dtype: str, rows: int = 32, cols: int = 32, outer: str = "rows") -> Schedule:
    register = Register(rows, cols, "rows" if outer == "rows" else "cols")
    return Schedule((Pack("B"), InstructionChoice(OPS[dtype]), register))


def text_of(problem: str, schedule: Schedule, name: str = "full", target: Target = SERVER) -> str:
    """The IR of one function of the micro-kernel."""
    module = ir.Module("tiles")
    planned = plan(parse_problem(problem), schedule, target)
    planned.kernel.pieces(planned.use)[name].emit(module)
    return str(module)


@pytest.mark.parametrize(("outer", "streamed"), [("rows", "b"), ("cols", "a")])
def test_the_side_that_streams_leaves_the_first_cache_alone(outer: str, streamed: str) -> None:
    text = text_of("matmul:m=64,n=64,k=64,dtype=bf16", schedule_of("bf16", outer=outer))
    once = set(re.findall(r'tileloaddt164"?\(i8 (\d)', text))
    registers = TileRegisters(2, 2)
    of = registers.b if streamed == "b" else registers.a
    assert once == {str(of(0)), str(of(1))}
    assert (
        len(re.findall(r'call void @"llvm.x86.tdpbf16ps"', text)) == 8
    )  # of a step, and of the last words


@pytest.mark.parametrize(
    ("problem", "tile", "message"),
    [
        ("matmul:m=64,n=64,k=64,dtype=bf16", (48, 32), "8 tile registers hold"),
        ("matmul:m=64,n=64,k=64,dtype=bf16", (20, 32), "no grid of tiles"),
        ("matmul:m=64,n=64,k=64,dtype=bf16,transpose_a", (32, 32), "transposed A"),
    ],
)
def test_what_tiles_cannot_hold_is_refused(
    problem: str, tile: tuple[int, int], message: str
) -> None:
    steps = (Pack("B"), Pack("A"), InstructionChoice(OPS["bf16"]), Register(*tile))
    with pytest.raises(LoweringError, match=message):
        plan(parse_problem(problem), Schedule(steps), SERVER)


def test_a_target_without_tiles_names_what_it_has() -> None:
    plain = described("sapphirerapids", FEATURES[:4])
    with pytest.raises(LoweringError, match="tune again for this target"):
        plan(parse_problem("matmul:m=64,n=64,k=64,dtype=bf16"), schedule_of("bf16"), plain)


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


@cases(20, short=8)
@given(st.data())
def test_any_schedule_of_tiles_is_right_where_tiles_are_emulated(data: st.DataObject) -> None:
    problems = matmuls | convolutions()
    problem: Matmul | Conv2d = data.draw(
        problems.filter(lambda p: p.dtype in (*OPS, "u8") and can_tile(p, SERVER))
    )
    schedule = data.draw(macro_kernels(problem, SERVER, Form.TILES))
    with emulated_tiles() as complaints:
        check(problem, schedule, SERVER, data.draw(st.integers(0, 9)))
    assert complaints == []


def in_parts(problem: Matmul | Conv2d) -> Matmul | Conv2d:
    """The problem in f32, by products of bf16."""
    return replace(problem, accuracy="bf16x3")


@cases(15, short=6)
@given(st.data())
def test_f32_in_parts_is_right_where_tiles_are_emulated(data: st.DataObject) -> None:
    problems = (matmuls | convolutions()).filter(lambda p: p.dtype == "f32").map(in_parts)
    problem = data.draw(problems.filter(lambda p: can_tile(p, SERVER)))
    schedule = data.draw(macro_kernels(problem, SERVER, Form.TILES))
    with emulated_tiles() as complaints:
        check(problem, schedule, SERVER, data.draw(st.integers(0, 9)))
    assert complaints == []


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


@pytest.mark.parametrize("dtype", OPS)
def test_emulated_tiles_complain_where_a_processor_would(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = parse_problem(f"matmul:m=32,n=32,k=64,dtype={dtype}")
    one_register = TileRegisters.b
    monkeypatch.setattr(TileRegisters, "a", lambda self, row: one_register(self, 0))
    with emulated_tiles() as complaints, pytest.raises(AssertionError):
        check(problem, schedule_of(dtype), SERVER, 0)
    assert any("are not three" in text for text in complaints)


@needs_amx
@cases(60, short=20)
@given(st.data())
def test_any_schedule_of_tiles_is_right_between_guard_pages(data: st.DataObject) -> None:
    target, problems = detect(), matmuls | convolutions()
    problem: Matmul | Conv2d = data.draw(
        problems.filter(lambda p: p.dtype in OPS and can_tile(p, target))
    )
    schedule = data.draw(macro_kernels(problem, target, Form.TILES))
    kind = WidenedProduct if problem.quantised_weights else MatrixTiles
    assert type(plan(problem, schedule, target).kernel) is kind
    check(problem, schedule, target, data.draw(st.integers(0, 9)))


@needs_amx
@pytest.mark.parametrize(
    ("text", "schedule", "products", "loads"),
    [
        (f"{IN_PARTS},accuracy=bf16x3", PARTS, 12, 10),  # three products of each tile
        ("matmul:m=256,n=256,k=1024,dtype=bf16", schedule_of("bf16"), 4, 4),
    ],
)
def test_the_inner_loop_is_bound_by_products_of_tiles(
    text: str, schedule: Schedule, products: int, loads: int
) -> None:
    found = inner_loop(parse_problem(text), schedule, detect())
    assert (found.counts.multiply_adds, found.counts.tile_loads, found.steps) == (
        products,
        loads,
        1,
    )
    assert found.bound is not None and found.bound.binds == "multiply-adds"
    assert found.bound.cycles["multiply-adds"] == products * 16
