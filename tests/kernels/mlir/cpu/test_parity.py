"""Random schedules: the loop nest, the native driver's counters and the transformed IR agree.

Where blocks divide, loops, packed shapes and the places of packs are the same, one by one.
Where they do not, the IR has a nest for each remainder, and what all of them multiply is
what the problem has.
"""

from math import prod

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from iree.compiler import ir

from tests.cases import cases
from tests.kernels.mlir.nests import Transformed, products, read, stages, trips_around
from tests.kernels.strategies import schedules
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.kernels.mlir.lowering.apply import Diagnostics, apply_script
from tilewise.kernels.mlir.transform.module import with_payload
from tilewise.kernels.native import lower
from tilewise.kernels.nest import Compute, Nest, count, shape_of
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.problem import Conv2d, Matmul, Problem
from tilewise.kernels.schedule import (
    Interleave,
    Jam,
    Pack,
    Parallel,
    Register,
    Schedule,
    Split,
    Step,
    Stream,
    Sweep,
    Tile,
    Unroll,
    loop_nest,
)
from tilewise.kernels.target import Target

LANES = 16
small = st.integers(1, 3)
odd = st.integers(1, 75)


@st.composite
def matmuls(draw: st.DrawFn) -> tuple[Problem, Schedule]:
    """A matmul whose extents are whole blocks of its schedule."""
    register = Register(draw(st.integers(1, 5)), LANES * draw(st.integers(1, 2)),
                        draw(st.sampled_from(["rows", "cols"])))  # fmt: skip
    unroll = draw(st.sampled_from([1, 2, 4]))
    depth, chunks = 4 * unroll * draw(small), draw(small)
    rows, row_blocks = register.rows * draw(st.integers(2, 3)), draw(small)
    cols, col_blocks = register.cols * draw(st.integers(2, 3)), draw(small)
    problem = Matmul(
        batch=draw(st.sampled_from([1, 1, 2])),
        m=rows * row_blocks,
        n=cols * col_blocks,
        k=depth * chunks,
        dtype=draw(st.sampled_from(["f32", "i32"])),
    )
    outer = [Tile("n", cols)] if col_blocks > 1 and draw(st.booleans()) else []
    inner: list[Step] = [Tile("m", rows)] if row_blocks > 1 and draw(st.booleans()) else []
    steps: list[Step] = [Tile("batch", 1)] if problem.batch > 1 else []
    if row_blocks == 2 and draw(st.booleans()):
        steps, inner = [Parallel("m", 2), *steps], []
    steps += outer
    steps += [Stream("k", depth)] if chunks > 1 and draw(st.booleans()) else []
    steps += [Pack("B")] if draw(st.booleans()) else []
    steps += inner
    steps += [Pack("A")] if draw(st.booleans()) else []
    steps += [register, *([Unroll(unroll)] if unroll > 1 else [])]
    return problem, Schedule(tuple(steps))


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[Problem, Schedule]:
    """A convolution whose outputs are whole blocks of its schedule."""
    register = Register(draw(st.integers(1, 4)), LANES * draw(st.integers(1, 2)),
                        draw(st.sampled_from(["rows", "cols"])))  # fmt: skip
    unroll = draw(st.sampled_from([1, 2]))
    depth, chunks = 2 * unroll * draw(small), draw(small)
    kh, kw, stride = draw(small), draw(small), draw(st.integers(1, 2))
    oh_block, oh_blocks = draw(small), draw(st.integers(1, 2))
    ow = register.rows * draw(st.integers(2, 3))
    cols, col_blocks = register.cols * draw(st.integers(1, 2)), draw(st.integers(1, 2))
    problem = Conv2d(
        n=draw(st.integers(1, 2)),
        h=(oh_block * oh_blocks - 1) * stride + kh,
        w=(ow - 1) * stride + kw,
        ci=depth * chunks,
        co=cols * col_blocks,
        kh=kh,
        kw=kw,
        stride=stride,
        dtype="f32",
    )
    steps: list[Step] = [Tile("co", cols)] if col_blocks > 1 and draw(st.booleans()) else []
    steps += [Stream("ci", depth)] if chunks > 1 and draw(st.booleans()) else []
    steps += [Pack("B")] if draw(st.booleans()) else []
    steps += [Tile("n", 1)]
    steps += [Tile("oh", oh_block)] if oh_blocks > 1 and draw(st.booleans()) else []
    steps += [Pack("A")] if draw(st.booleans()) else []
    steps += [register, *([Unroll(unroll)] if unroll > 1 else [])]
    return problem, Schedule(tuple(steps))


def transformed(problem: Problem, schedule: Schedule) -> Transformed:
    """Applied in this process: a child for each of hundreds would take minutes."""
    return read(applied(problem, schedule))


def applied(problem: Problem, schedule: Schedule) -> str:
    """The transformed module as text."""
    with ir.Context() as context, ir.Location.unknown():
        text = with_payload(problem, emit_script(problem, schedule))
        return str(apply_script(text, Diagnostics(context)))


@st.composite
def narrow_groups(draw: st.DrawFn) -> tuple[Conv2d, Schedule]:
    """A convolution of few channels in a group, without padding, of whole blocks and tiles."""
    planes, lines, rows = draw(st.booleans()), draw(small), draw(st.integers(1, 4))
    vectors, stride = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    kh, kw = draw(small), draw(small)
    cols, blocks = LANES * vectors, draw(small)
    down, across, groups = lines * draw(small), rows * draw(small), cols * blocks
    if planes:
        down, across, groups, lines = rows * draw(small), cols * draw(small), draw(small) + 1, 1
    problem = Conv2d(
        n=1,
        h=(down - 1) * stride + kh,
        w=(across - 1) * stride + kw,
        ci=groups,
        co=groups,
        groups=groups,
        kh=kh,
        kw=kw,
        stride=stride,
        layout="nchw_fchw" if planes else "nhwc_hwcf",
        dtype=draw(st.sampled_from(["f32", "i32"])),
    )
    unit = rows if planes else lines
    steps: list[Step] = [Tile("oh", unit)] if down > unit and draw(st.booleans()) else []
    if not planes and blocks > 1 and draw(st.booleans()):
        steps.append(Tile("co", cols))
    register = Register(rows, cols, draw(st.sampled_from(["rows", "cols"])))
    return problem, Schedule((*steps, register, *([Jam("oh", lines)] if lines > 1 else [])))


@pytest.mark.full
@pytest.mark.timeout(900)
@cases(40)
@given(narrow_groups())
def test_narrow_groups_have_one_nest_in_both_lowerings(
    host: Target, drawn: tuple[Conv2d, Schedule]
) -> None:
    """Loops are the same one by one; taps and vectors of a tile are unrolled."""
    problem, schedule = drawn
    nest = loop_nest(problem, schedule)
    counted = lower(problem, schedule, host).counted_run(make_operands(problem, 0))
    assert counted["micro_kernels"] == count(nest).micro_kernels
    text = applied(problem, schedule)
    (kernel,) = read(text).kernels
    assert kernel.trips == trips_of_tiles(nest)
    assert prod(kernel.trips) == counted["micro_kernels"]
    assert products(text) == problem.flops // 2


@pytest.mark.timeout(900)
@cases(24, short=8)
@given(st.data())
def test_a_sweep_has_the_loops_of_its_steps_in_both_lowerings(
    host: Target, data: st.DataObject
) -> None:
    depth, rows, vectors = data.draw(st.sampled_from([2, 4, 8])), data.draw(small), data.draw(small)
    cols, tiles = host.lanes("f32") * vectors, data.draw(st.integers(1, 3))
    n, k = cols * data.draw(st.integers(2, 4)), depth * data.draw(st.integers(2, 5))
    problem = Matmul(m=rows * tiles, n=n, k=k, dtype="f32")
    register = Register(rows, cols, "cols" if tiles == 1 else "rows")
    schedule = Schedule((Stream("k", depth), register, Sweep("n")))
    change = data.draw(st.sampled_from(["none", "interleave", "tile"]))
    if change == "interleave":
        schedule = Schedule((*schedule.steps, Interleave("k", 2)))
    elif change == "tile":
        schedule = Schedule((Tile("n", cols), *schedule.steps))
    nest = loop_nest(problem, schedule)
    counted = lower(problem, schedule, host).counted_run(make_operands(problem, 0))
    assert counted["micro_kernels"] == count(nest).micro_kernels
    (kernel,) = read(applied(problem, schedule)).kernels
    assert kernel.trips == [*trips_of_tiles(nest), depth]


@st.composite
def inner_products(draw: st.DrawFn) -> tuple[Matmul, Schedule, int]:
    """A matmul of whole blocks of a schedule with a split reduction; the loops that its rows make.

    Where a row of the tile has sums for all registers, rows are summed one after another.
    """
    rows, cols = draw(st.integers(1, 4)), draw(small)
    lanes, unroll = LANES * draw(st.sampled_from([1, 2, 3, 16])), draw(st.sampled_from([1, 2]))
    depth, chunks = lanes * unroll * draw(st.integers(2, 3)), draw(small)
    problem = Matmul(
        batch=draw(st.sampled_from([1, 1, 2])),
        m=rows * draw(st.integers(2, 4)),
        n=cols * draw(small),
        k=depth * chunks,
        transpose_b=draw(st.booleans()),
        dtype=draw(st.sampled_from(["f32", "i32"])),
    )
    steps: list[Step] = [Tile("batch", 1)] if problem.batch > 1 else []
    steps += [Stream("k", depth)] if chunks > 1 and draw(st.booleans()) else []
    # a single column that one vector copies whole is the same tensor for MLIR
    packs = problem.n > 1 and (not problem.transpose_b or draw(st.booleans()))
    steps += [Pack("B")] if packs else []
    steps += [Tile("m", rows * 2)] if problem.m == rows * 4 and draw(st.booleans()) else []
    steps += [Pack("A")] if draw(st.booleans()) else []
    steps += [Register(rows, cols, draw(st.sampled_from(["rows", "cols"]))), Split("k", lanes)]
    steps += [Unroll(unroll)] if unroll > 1 else []
    at_once = lanes // LANES * rows * cols + cols + 1 <= 32
    return problem, Schedule(tuple(steps)), 1 if at_once else rows if rows > 1 else cols


@pytest.mark.full
@pytest.mark.timeout(900)
@cases(50)
@given(inner_products())
def test_a_split_reduction_has_one_nest_in_both_lowerings(
    host: Target, drawn: tuple[Matmul, Schedule, int]
) -> None:
    problem, schedule, parts = drawn
    nest = loop_nest(problem, schedule)
    staged = {prod(shape_of(nest, here)): here for here in stages(nest)}
    assume(len(staged) == len(stages(nest)))  # told apart by it
    counts, counted = count(nest), lower(problem, schedule, host).counted_run(
        make_operands(problem, 0)
    )  # fmt: skip
    assert counted["micro_kernels"] == counts.micro_kernels
    assert {name: counted[name] for name in counts.packs} == counts.packs

    text = applied(problem, schedule)
    found, lanes = read(text), nest.compute.lanes
    inside = [parts, nest.depth // (lanes * nest.compute.unroll)]
    assert len(found.kernels) == 1
    assert found.kernels[0].trips == [*trips_of_tiles(nest), *(t for t in inside if t > 1)]
    assert products(text) == problem.flops // 2
    packs = {shape: at for shape, at in found.fills.items() if shape[-1] != lanes}
    assert len(packs) == len(staged)
    for shape, place in packs.items():
        outside = trips_around(nest, staged[prod(shape)])
        assert place.trips[: len(outside)] == outside
        assert place.loops[: len(outside)] == found.kernels[0].loops[: len(outside)]


@pytest.mark.timeout(900)
@cases(40, short=8)
@given(st.data())
def test_a_split_reduction_with_remainders_loses_no_product(
    host: Target, data: st.DataObject
) -> None:
    small_result = st.builds(Matmul, m=odd, n=st.integers(1, 7), k=odd, dtype=st.just("f32"))
    problem = data.draw(small_result)
    schedule = data.draw(schedules(problem, host, splits=True))
    try:
        text = applied(problem, schedule)
    except LoweringError:
        assume(False)  # blocks that cannot be made static
    assert products(text) == problem.flops // 2


def trips_of_tiles(nest: Nest) -> list[int]:
    """Trips of the loops around the micro-kernel."""
    return trips_around(nest, next(here for here in nest.visit() if isinstance(here.node, Compute)))


@pytest.mark.timeout(900)
@cases(100, short=25)
@given(matmuls() | convolutions())
def test_where_blocks_divide_all_three_agree(host: Target, drawn: tuple[Problem, Schedule]) -> None:
    problem, schedule = drawn
    nest = loop_nest(problem, schedule)
    counts, counted = count(nest), lower(problem, schedule, host).counted_run(
        make_operands(problem, 0)
    )  # fmt: skip
    assert counted["micro_kernels"] == counts.micro_kernels
    assert {name: counted[name] for name in counts.packs} == counts.packs

    found = transformed(problem, schedule)
    taps = [t for t in (getattr(problem, "kh", 1), getattr(problem, "kw", 1)) if t > 1]
    steps = nest.depth // nest.compute.unroll
    inside = [*taps, *([steps] if steps > 1 else [])]
    assert len(found.kernels) == 1
    assert found.kernels[0].trips == trips_of_tiles(nest) + inside
    assert prod(found.kernels[0].trips) == counts.micro_kernels * prod(inside)
    assert len(found.fills) == len(stages(nest))
    for stage in stages(nest):
        size = prod(shape_of(nest, stage))
        place = next(at for shape, at in found.fills.items() if prod(shape) == size)
        outside = trips_around(nest, stage)
        assert place.trips[: len(outside)] == outside
        assert place.loops[: len(outside)] == found.kernels[0].loops[: len(outside)]


anything = st.builds(
    Matmul, m=odd, n=st.integers(16, 75), k=odd, dtype=st.sampled_from(["f32", "i32"])
)


@pytest.mark.full
@pytest.mark.timeout(900)
@cases(50)
@given(st.data())
def test_with_remainders_no_product_is_lost_or_made_twice(
    host: Target, data: st.DataObject
) -> None:
    problem = data.draw(anything)
    schedule = data.draw(schedules(problem, host, splits=False))
    try:
        text = applied(problem, schedule)
    except LoweringError:
        assume(False)  # blocks that cannot be made static
    assert products(text) == problem.flops // 2
