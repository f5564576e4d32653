"""What each step does to a loop nest: golden nests, counts, and schedules against the reference."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from tests.kernels.strategies import of_fewer_products, problems, schedules
from tests.search.targets import WIDE
from tilewise.kernels.nest import Loop, LoopKind, Nest, Node, Stage, count, printed, shape_of
from tilewise.kernels.nest.interpreter import Array, Interpreter
from tilewise.kernels.oracle.operands import make_operands, operand_type, widened
from tilewise.kernels.oracle.reference import reference
from tilewise.kernels.problem import Conv2d, Problem, parse_problem
from tilewise.kernels.schedule import Schedule, loop_nest
from tilewise.kernels.steps import Pack, Register, Split, Stream, Tile, Unroll

MATMUL = "matmul:m=33,n=40,k=50,dtype=f32,bias,epilogue=relu"
LARGEST = 200_000
"""Multiply-adds that the interpreter is asked for."""


def step(text: str) -> dict[str, object]:
    """The JSON of a step as it prints."""
    name, *fields = text.split()
    pairs = (field.split("=") for field in fields)
    return {"step": name} | {k: int(v) if v.isdigit() else v for k, v in pairs}


def wide_operands(problem: Problem) -> dict[str, Array]:
    """Operands in float64 or int64; C, where it is only written, is NaN."""
    operands = make_operands(problem, 1)
    wide = {name: widened(array, operand_type(problem, name)) for name, array in operands.items()}
    if not problem.accumulates and problem.element.is_float:
        wide["C"] = np.full(wide["C"].shape, np.nan)
    return wide


def check(nest: Nest) -> None:
    """The interpreter computes the reference's result, with the calls that are counted."""
    right = reference(nest.problem, make_operands(nest.problem, 1))
    expected = right.value
    interpreter = Interpreter(nest, wide_operands(nest.problem))
    found = interpreter.run()
    if nest.problem.out and right.tolerance is None:
        np.testing.assert_array_equal(found, expected)
    elif nest.problem.out:
        assert right.tolerance is not None and (abs(found - expected) <= right.tolerance).all()
        bits = found.astype(np.float16 if nest.problem.out == "f16" else np.float32)
        assert np.array_equal(bits, found)
        assert nest.problem.out == "f16" or not (bits.view(np.uint32) & 0xFFFF).any()
    elif nest.problem.element.is_float:
        scale = max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * scale)
    else:
        np.testing.assert_array_equal(found, expected)
    assert interpreter.calls == count(nest).micro_kernels


def made(problem: str, steps: tuple[str, ...]) -> Nest:
    """The nest of steps as they print."""
    return loop_nest(parse_problem(problem), Schedule.from_json(map(step, steps)))


REGISTER = "register rows=6 cols=16 outer=cols"
GOLDEN = {
    (MATMUL, REGISTER): """
for n step 16:  # micro, 3 trips
  for m step 6:  # micro, 6 trips
    C += A * B  # 6x16 over 50
    store C (bias, relu)""",
    (MATMUL, "stream dim=k depth=20", "tile dim=n size=32", "pack operand=B", "prefetch operand=B",
     REGISTER, "unroll factor=2"): """
for k step 20:  # k-block, 3 trips
  for n step 32:  # tile, 2 trips
    pack B to panels 2x1x20x16
    prefetch the next block of B to L2
    for n step 16:  # micro, 2 trips
      for m step 6:  # micro, 6 trips
        C += A * B  # 6x16 over 20, unrolled 2
        store C (bias, relu)""",
    (MATMUL, "parallel dim=m parts=2", "pack operand=A", "register rows=4 cols=1 outer=rows",
     "split dim=k lanes=16"): """
for m step 20:  # parallel, 2 trips
  pack A to rows 20x50
  for m step 4:  # micro, 5 trips
    for n step 1:  # micro, 40 trips
      C += A * B  # 4x1 over 50 in 16 partial sums
      store C (bias, relu)""",
    ("matmul:m=2,n=40,k=50,dtype=f32", "stream dim=k depth=8", "prefetch operand=B",
     "register rows=2 cols=16 outer=cols", "skinny dim=n", "k_streams dim=k streams=4"): """
for k step 8:  # k-block, 7 trips, of 4 streams
  prefetch rows further on of B to L1, 256 bytes ahead
  for n step 16:  # micro, 3 trips, in the micro-kernel
    for m step 2:  # micro, 1 trips, in the micro-kernel
      C += A * B  # 2x16 over 8
      store C""",
    ("matmul:m=4,n=40,k=50,dtype=f32", "stream dim=k depth=8", "prefetch operand=B",
     "register rows=2 cols=16 outer=rows", "skinny dim=n"): """
for k step 8:  # k-block, 7 trips
  prefetch rows further on of B to L2, 256 bytes ahead
  for m step 2:  # micro, 2 trips, in the micro-kernel
    for n step 16:  # micro, 3 trips, in the micro-kernel
      C += A * B  # 2x16 over 8
      store C""",
    ("conv2d:n=2,h=9,w=11,ci=5,co=20,kh=3,kw=3,pad=1,dtype=f32", "tile dim=n size=1",
     "tile dim=oh size=4", "pack operand=A", REGISTER): """
for n step 1:  # tile, 2 trips
  for oh step 4:  # tile, 3 trips
    pack A to image 6x13x5
    for co step 16:  # micro, 2 trips
      for n step 1:  # micro, 1 trips
        for oh step 1:  # micro, 4 trips
          for ow step 6:  # micro, 2 trips
            C += A * B  # 6x16 over 5 x 9 taps
            store C""",
    ("conv2d:n=1,h=9,w=11,ci=8,co=16,kh=3,kw=3,pad=1,groups=8,dtype=f32",
     "register rows=4 cols=16 outer=cols", "jam dim=oh factor=2", "nontemporal operand=C"): """
for co step 16:  # micro, 1 trips, in the micro-kernel
  for n step 1:  # micro, 1 trips, in the micro-kernel
    for oh step 2:  # micro, 5 trips, in the micro-kernel
      for ow step 4:  # micro, 3 trips, in the micro-kernel
        C += A * B  # 2x4x16 over 1 x 9 taps
        store C (past the caches)""",
    ("conv2d:n=2,h=9,w=11,ci=5,co=20,kh=3,kw=3,pad=1,dtype=f32,weights=constant",
     "winograd output=4", "pack operand=B", "prefetch operand=B", "tile dim=t size=8",
     "pack operand=A", "register rows=4 cols=16 outer=cols"): """
transform B to panels 2x36x5x16, ahead
prefetch the panel behind of B to L2, 16384 bytes ahead
for t step 8:  # tile, 3 trips
  transform A to points 36x8x5
  for co step 16:  # micro, 2 trips
    for point step 1:  # micro, 36 trips
      for t step 4:  # micro, 2 trips
        C += A * B  # 4x16 over 5
    transform products to C""",
    ("matmul:m=21,n=24,k=20,dtype=f32", "strassen levels=1", "pack operand=B", "pack operand=A",
     "register rows=4 cols=16 outer=cols"): """
transform B to panels 1x7x10x16
transform A to points 7x11x10
for n step 16:  # micro, 1 trips
  for point step 1:  # micro, 7 trips
    for t step 4:  # micro, 3 trips
      C += A * B  # 4x16 over 10
  transform products to C""",
}  # fmt: skip


@pytest.mark.parametrize("written", GOLDEN, ids=lambda g: " ".join(s.split()[0] for s in g[1:]))
def test_a_schedule_makes_its_nest_and_the_nest_the_result(written: tuple[str, ...]) -> None:
    nest = made(written[0], written[1:])
    assert "\n".join(printed(nest)) == GOLDEN[written].strip("\n")
    check(nest)


@cases(60)
@given(st.data())
def test_any_legal_schedule_computes_the_reference(data: st.DataObject) -> None:
    problem = data.draw(problems.filter(lambda p: p.flops // 2 <= LARGEST))
    check(loop_nest(problem, data.draw(schedules(problem, WIDE))))


@cases(30)
@given(st.data())
def test_any_legal_schedule_of_fewer_products_computes_the_reference(data: st.DataObject) -> None:
    problem, schedule = data.draw(of_fewer_products(WIDE))
    if problem.flops // 2 <= LARGEST:
        check(loop_nest(problem, schedule))


def test_the_interpreter_tells_a_wrong_nest() -> None:
    """K-blocks that each begin C anew."""
    nest = made(MATMUL, ("stream dim=k depth=20", REGISTER))

    def wrong(node: Node) -> Node:
        is_k = isinstance(node, Loop) and node.kind is LoopKind.K_BLOCK
        return replace(node, kind=LoopKind.TILE) if is_k else node

    expected = reference(nest.problem, make_operands(nest.problem, 1)).value
    found = Interpreter(nest.mapped(wrong), wide_operands(nest.problem)).run()
    assert not np.allclose(found, expected)


BLOCKS = Tile("n", 480), Stream("k", 501), Pack("B"), Tile("m", 96), Pack("A")
GOTO = Schedule((*BLOCKS, Register(8, 48), Unroll(4)))
ODD = parse_problem("matmul:m=1000,n=999,k=1001,dtype=f32")


def stages(nest: Nest) -> list[tuple[str, tuple[int, ...]]]:
    """The operands that are staged, with the shapes of their largest blocks."""
    visited = [here for here in nest.visit() if isinstance(here.node, Stage)]
    return [(here.node.operand, shape_of(nest, here)) for here in visited]


def test_counts_with_remainders_everywhere() -> None:
    counts = count(loop_nest(ODD, GOTO))
    panels, tiles = 21, 125  # of 48 columns and 8 rows; 960 and 992 are whole
    assert counts.micro_kernels == panels * tiles * 2
    assert counts.packs == {"B": 3 * 2, "A": 3 * 2 * 11}
    assert counts.packed_bytes == {"B": 21 * 48 * 1001 * 4, "A": 3 * 1000 * 1001 * 4}


def blocks(extent: int, *sizes: int) -> list[range]:
    """A dim cut into blocks of a size, those into blocks of the next, and so on."""
    found = [range(extent)]
    for size in sizes:
        found = [one[at : at + size] for one in found for at in range(0, len(one), size)]
    return found


def lines_under(outputs: range, taps: int, problem: Conv2d) -> int:
    """Lines of the image from the first to the last that some tap of some output reads."""
    read = {o * problem.stride + t * problem.dilation for o in outputs for t in range(taps)}
    return max(read) - min(read) + 1


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("taps", [1, 2, 4])
def test_packs_of_an_image_write_what_outputs_read(stride: int, dilation: int, taps: int) -> None:
    text = f"n=3,h=40,w=50,ci=6,co=32,kh={taps},kw=3,stride={stride},dilation={dilation},pad=2"
    problem = parse_problem(f"conv2d:{text},dtype=f32")
    steps = (Stream("ci", 4), Tile("n", 1), Tile("oh", 9), Tile("oh", 4), Tile("ow", 10), Pack("A"))
    nest = loop_nest(problem, Schedule((*steps, Register(5, 16))))
    down = [lines_under(block, taps, problem) for block in blocks(problem.oh, 9, 4)]
    across = [lines_under(block, 3, problem) for block in blocks(problem.ow, 10)]
    assert stages(nest) == [("A", (max(down), max(across), 4))]
    counts = count(nest)
    assert counts.packed_bytes == {"A": 3 * sum(down) * sum(across) * problem.ci * 4}
    assert counts.packs == {"A": 2 * 3 * len(down) * len(across)}


def test_a_split_reduction_packs_columns_and_counts_alike() -> None:
    problem = parse_problem("matmul:m=10,n=3,k=100,dtype=f32")
    steps = (Stream("k", 50), Pack("B"), Register(4, 2))
    nest = loop_nest(problem, Schedule((*steps, Split("k", 32), Unroll(2))))
    assert stages(nest) == [("B", (2, 1, 2, 50))]
    assert "  C += A * B  # 4x2 over 50 in 32 partial sums, unrolled 2" in "\n".join(printed(nest))
    assert count(nest) == count(loop_nest(problem, Schedule(steps)))
