"""Random schedules: the loop nest, the native driver's counters and the transformed IR agree.

Where blocks divide, loops, packed shapes and the places of packs are the same, one by one.
Where they do not, the IR has a nest for each remainder, and what all of them multiply is
what the problem has.
"""

from math import prod

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.cases import cases
from tests.kernels.mlir.nests import applied, products, read, stages, trips_around
from tests.kernels.strategies import schedules
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native import lower
from tilewise.kernels.nest import Compute, Nest, count, shape_of
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.problem import Conv2d, Conv3d, Matmul, Problem
from tilewise.kernels.schedule import (
    KStreams,
    Pack,
    Parallel,
    Register,
    Schedule,
    Skinny,
    Step,
    Stream,
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
        batch=draw(st.sampled_from([1, 1, 2])), m=rows * row_blocks, n=cols * col_blocks,
        k=depth * chunks, dtype=draw(st.sampled_from(["f32", "i32"])),
    )  # fmt: skip
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
    """A convolution of images or volumes whose outputs are whole blocks of its schedule."""
    register = Register(draw(st.integers(1, 4)), LANES * draw(st.integers(1, 2)),
                        draw(st.sampled_from(["rows", "cols"])))  # fmt: skip
    unroll = draw(st.sampled_from([1, 2]))
    depth, chunks = 2 * unroll * draw(small), draw(small)
    kh, kw, stride = draw(small), draw(small), draw(st.integers(1, 2))
    oh_block, oh_blocks = draw(small), draw(st.integers(1, 2))
    ow = register.rows * draw(st.integers(2, 3))
    cols, col_blocks = register.cols * draw(st.integers(1, 2)), draw(st.integers(1, 2))
    kd = draw(st.integers(0, 2))  # none of an image
    problem = (Conv3d if kd else Conv2d)(
        **({"d": kd + 1, "kd": kd} if kd else {}), n=draw(st.integers(1, 2)),
        h=(oh_block * oh_blocks - 1) * stride + kh, w=(ow - 1) * stride + kw, ci=depth * chunks,
        co=cols * col_blocks, kh=kh, kw=kw, stride=f"1x{stride}x{stride}" if kd else stride,
        dtype="f32",
    )  # fmt: skip
    steps: list[Step] = [Tile("co", cols)] if col_blocks > 1 and draw(st.booleans()) else []
    steps += [Stream("ci", depth)] if chunks > 1 and draw(st.booleans()) else []
    steps += [Pack("B")] if draw(st.booleans()) else []
    steps += [Tile("n", 1), *([Tile("od", 1)] if kd else [])]
    steps += [Tile("oh", oh_block)] if oh_blocks > 1 and draw(st.booleans()) else []
    steps += [Pack("A")] if draw(st.booleans()) else []
    steps += [register, *([Unroll(unroll)] if unroll > 1 else [])]
    return problem, Schedule(tuple(steps))


@pytest.mark.timeout(900)
@cases(16, short=8)
@given(st.data())
def test_a_skinny_gemm_has_the_loops_of_its_steps_in_both_lowerings(host, data) -> None:
    depth, rows, vectors = data.draw(st.sampled_from([2, 4, 8])), data.draw(small), data.draw(small)
    cols, tiles = host.lanes("f32") * vectors, data.draw(st.integers(1, 3))
    n, k = cols * data.draw(st.integers(2, 4)), depth * data.draw(st.integers(2, 5))
    problem = Matmul(m=rows * tiles, n=n, k=k, dtype="f32")
    register = Register(rows, cols, "cols" if tiles == 1 else "rows")
    schedule = Schedule((Stream("k", depth), register, Skinny("n")))
    change = data.draw(st.sampled_from(["none", "interleave", "tile"]))
    if change == "interleave":
        schedule = Schedule((*schedule.steps, KStreams("k", 2)))
    elif change == "tile":
        schedule = Schedule((Tile("n", cols), *schedule.steps))
    nest = loop_nest(problem, schedule)
    counted = lower(problem, schedule, host).counted_run(make_operands(problem, 0))
    assert counted["micro_kernels"] == count(nest).micro_kernels
    (kernel,) = read(applied(problem, schedule)).kernels
    assert kernel.trips == [*trips_of_tiles(nest), depth]


@pytest.mark.timeout(900)
@cases(24, short=8)
@given(st.data())
def test_a_split_reduction_with_remainders_loses_no_product(host, data) -> None:
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
    counts = count(nest)
    counted = lower(problem, schedule, host).counted_run(make_operands(problem, 0))
    assert counted["micro_kernels"] == counts.micro_kernels
    assert {name: counted[name] for name in counts.packs} == counts.packs

    found = read(applied(problem, schedule))
    taps = [t for t in problem.window if t > 1]
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
