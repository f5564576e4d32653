"""Products of matrix tiles with quantised weights: emulated, so that they run on any machine."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from tests.kernels.emulated_tiles import emulated_tiles
from tests.kernels.native.test_matrix_tiles import SERVER
from tests.kernels.native.test_weight_only import KINDS, problem_of
from tests.kernels.native_case import check
from tests.kernels.strategies import macro_kernels
from tilewise.kernels.arithmetic import arithmetic_of
from tilewise.kernels.errors import LoweringError, ScheduleError
from tilewise.kernels.instructions import Form
from tilewise.kernels.native import lower
from tilewise.kernels.native.export.module import export
from tilewise.kernels.native.plan import plan
from tilewise.kernels.oracle.operands import Array, make_operands
from tilewise.kernels.oracle.reference import reference
from tilewise.kernels.problem import Matmul
from tilewise.kernels.schedule import (
    InstructionChoice,
    Pack,
    Register,
    Schedule,
    Stream,
    Tile,
    loop_nest,
)
from tilewise.kernels.target.machine import described
from tilewise.search.space.space import Space

OP = "x86.amx.tdpbf16ps"
PACKS = (Pack("B"), Pack("A"))
ENDS = (InstructionChoice(OP), Register(16, 16))


@pytest.mark.parametrize("at", range(len(KINDS)))
def test_every_kind_is_right(at: int) -> None:
    """With columns outside and rows outside, so that a panel is widened once and for each call."""
    problem = problem_of(KINDS[at])
    by_rows = (InstructionChoice(OP), Register(16, 16, "rows"))
    steps = [(*PACKS, *ENDS), (Tile("n", 32), Pack("B"), Tile("m", 16), Pack("A"), *by_rows)]
    with emulated_tiles() as complaints:
        check(problem, Schedule(steps[at % 2]), SERVER, at)
    assert complaints == []


@pytest.mark.parametrize("blocks", [3, 4, 5, 9])
def test_tiles_of_sums_take_turns_over_any_number_of_blocks(blocks: int) -> None:
    problem = problem_of(f"m=18,n=20,k={32 * blocks},dtype=bf16,b=i4,group=32,zero_b=u4")
    with emulated_tiles() as complaints:
        check(problem, Schedule((*PACKS, *ENDS)), SERVER, 0)
        if blocks > 4:
            check(problem, Schedule((Stream("k", 128), *PACKS, *ENDS)), SERVER, 1)
    assert complaints == []


@pytest.mark.full
@cases(12, short=4)
@given(st.data())
def test_any_schedule_is_right(data: st.DataObject) -> None:
    problem = problem_of(data.draw(st.sampled_from(KINDS)))
    schedule = data.draw(macro_kernels(problem, SERVER, Form.TILES))
    with emulated_tiles() as complaints:
        check(problem, schedule, SERVER, data.draw(st.integers(0, 9)))
    assert complaints == []


def result(problem: Matmul, operands: dict[str, Array]) -> Array:
    """What the emulated kernel computes."""
    with emulated_tiles() as complaints:
        lower(problem, Schedule((*PACKS, *ENDS)), SERVER).run(operands)
    assert complaints == []
    return operands["C"]


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
    np.testing.assert_array_equal(result(problem, operands), expected)


def test_an_f32_is_the_sum_of_its_parts() -> None:
    problem = problem_of("m=3,n=16,k=32,dtype=f32,b=i8,group=32")
    operands = make_operands(problem, 2)
    a = operands["A"]
    a[...] = 0
    a[:, 5] = [1 + 2**-23, -(2.0**-90) * (2 - 2**-23), 2.0**100 * 1.7654321]
    operands["B"][...], operands["scale_b"][...] = 1, 1
    np.testing.assert_array_equal(result(problem, operands)[:, 0], a[:, 5])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_spoils_its_row_alone(value: float) -> None:
    problem = problem_of(KINDS[1])
    operands = make_operands(problem, 9)
    expected = reference(problem, operands).value
    operands["A"][3, 150] = value
    found = result(problem, operands)
    assert not np.isfinite(found[3]).any()
    others = np.delete(np.arange(problem.m), 3)
    np.testing.assert_allclose(found[others], expected[others], rtol=0, atol=1e-3)


def test_a_panel_is_widened_for_the_first_call_that_reads_it() -> None:
    problem = problem_of("m=64,n=64,k=64,dtype=bf16,b=i4,group=32")
    body = plan(problem, Schedule((*PACKS, *ENDS)), SERVER).source.text
    assert body.count("call_address(widen,") == 1
    assert body.index("if b_tile != widened") < body.index("call_address(widen,")
    assert "_may_use_tiles():" in export(problem, Schedule((*PACKS, *ENDS)), SERVER)


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
