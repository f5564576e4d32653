"""Which tiles are cut, what share of the time they take, and what that makes of their code."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from tests.kernels.strategies import problems, schedules
from tilewise.kernels.native.microkernels.microkernel import Use, use_of
from tilewise.kernels.nest import Loop, Nest
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Pack, Parallel, Register, Schedule, Stream, Tile, loop_nest
from tilewise.kernels.target import Target

LANES = 16


def tiles(nest: Nest) -> Counter[tuple[int, int]]:
    """Rows and columns of every micro-tile, found by walking all loops."""
    found: Counter[tuple[int, int]] = Counter()

    def walk(loops: list[Loop], ranges: dict[str, tuple[int, int]]) -> None:
        if not loops:
            rows, cols = (ranges[d] for d in (nest.row, nest.col))
            found[rows[1] - rows[0], cols[1] - cols[0]] += 1
            return
        loop, *inner = loops
        first, end = ranges[loop.dim]
        for at in range(first, end, loop.step):
            walk(inner, ranges | {loop.dim: (at, min(at + loop.step, end))})

    both = (nest.row, nest.col)
    walk(
        [loop for loop in nest.loops if loop.dim in both],
        {dim: (0, extent) for dim, extent in nest.extents.items()},
    )
    return found


@cases(200, short=60)
@given(st.data())
def test_what_is_cut_is_what_a_walk_over_all_tiles_meets(host: Target, data: st.DataObject) -> None:
    problem = data.draw(problems)
    nest = loop_nest(problem, data.draw(schedules(problem, host)))
    rows = any(r != nest.tile.rows for r, _ in tiles(nest))
    cols = any(c != nest.tile.cols for _, c in tiles(nest))
    sides = [side for side, is_cut in (("rows", rows), ("cols", cols)) if is_cut]
    assert use_of(nest, LANES).cut == " and ".join(sides)


def use(text: str, *steps: object) -> Use:
    return use_of(loop_nest(parse_problem(f"matmul:{text},dtype=f32"), Schedule(steps)), LANES)


@pytest.mark.parametrize(
    ("text", "steps", "seldom"),
    [
        ("m=60,n=64,k=9", (Register(6, 64),), {"edge", "filling"}),  # none at all
        ("m=64,n=64,k=9", (Register(6, 64),), {"edge", "filling"}),  # 1 tile of 11
        ("m=52,n=64,k=9", (Register(6, 64),), {"filling"}),  # 1 of 9
        ("m=600,n=320,k=9", (Register(6, 48),), {"filling"}),  # 32 columns are left: 1 of 7
        ("m=600,n=304,k=9", (Register(6, 48),), {"edge", "filling"}),  # 16: a third of a tile of 7
        ("m=600,n=16,k=9", (Register(6, 48),), {"filling"}),  # narrow, but all there is
        ("m=60,n=64,k=9", (Pack("B"), Register(6, 64)), {"edge", "filling"}),
        ("m=54,n=64,k=9", (Pack("B"), Register(6, 64)), {"edge"}),
        ("m=60,n=640,k=9", (Stream("k", 3), Pack("B"), Register(6, 64)), {"edge", "filling"}),
        # Packed anew for each block of rows.
        ("m=600,n=64,k=9", (Tile("m", 60), Pack("B"), Register(6, 64)), {"edge", "filling"}),
        ("m=600,n=64,k=9", (Tile("m", 54), Pack("B"), Register(6, 64)), {"edge"}),
        ("m=60,n=760,k=9", (Parallel("n", 12), Register(6, 64)), set()),  # the last has no other
    ],
)
def test_seldom_is_up_to_a_tenth_of_the_time(text: str, steps: tuple, seldom: set[str]) -> None:
    assert use(text, *steps).rare == seldom
