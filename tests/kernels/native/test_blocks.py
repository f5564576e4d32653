"""Native kernels whose images have their channels in blocks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.guarded import GuardedArray
from tilewise.kernels.channel_blocks import Blocks
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.loopnest import build, count
from tilewise.kernels.native import lower
from tilewise.kernels.native.plan import plan
from tilewise.kernels.oracle.filtering import loosened
from tilewise.kernels.oracle.operands import Array, make_operands, poison
from tilewise.kernels.oracle.reference import reference
from tilewise.kernels.oracle.tolerance import compare
from tilewise.kernels.problem import Conv2d, Problem, parse_problem
from tilewise.kernels.schedule import (
    Pack,
    Parallel,
    Prefetch,
    Register,
    Schedule,
    Step,
    Stream,
    Tile,
    Unroll,
    Winograd,
)
from tilewise.kernels.target import Target


def in_blocks(image: Array, size: int) -> Array:
    """[n, h, w, c] as [n, c / size, h, w, size]; as it is for 0."""
    if not size:
        return image
    n, h, w, c = image.shape
    apart = image.reshape(n, h, w, c // size, size)
    return np.ascontiguousarray(apart.transpose(0, 3, 1, 2, 4))


def out_of_blocks(image: Array, size: int) -> Array:
    if not size:
        return image
    n, outer, h, w, _ = image.shape
    return np.ascontiguousarray(image.transpose(0, 2, 3, 1, 4)).reshape(n, h, w, outer * size)


def check(problem: Problem, schedule: Schedule, target: Target, blocks: Blocks, seed: int) -> None:
    """The result is right, nothing else is touched, the counts are those of the plain image."""
    operands = make_operands(problem, seed)
    if not problem.accumulates:
        poison(operands["C"])
    expected = reference(problem, operands)
    if schedule.winograd is not None:
        expected = loosened(problem, operands, expected, schedule.winograd)
    laid = dict(
        operands, A=in_blocks(operands["A"], blocks.a), C=in_blocks(operands["C"], blocks.c)
    )
    guarded = {name: GuardedArray(array) for name, array in laid.items()}
    counts = lower(problem, schedule, target, blocks).counted_run(
        {name: one.array for name, one in guarded.items()}
    )
    result = out_of_blocks(guarded["C"].array, blocks.c)
    error, tolerance = compare(problem, result, expected)
    assert error <= tolerance, (problem, schedule, blocks)
    assert all(one.is_intact() for one in guarded.values())
    meant = count(problem, build(problem, schedule))
    assert counts["micro_kernels"] == meant.micro_kernels
    assert {name: n for name, n in counts.items() if name in meant.packs} == meant.packs


def conv(text: str) -> Conv2d:
    found = parse_problem(f"conv2d:{text}")
    assert isinstance(found, Conv2d)
    return found


WALKED = "n=2,h=5,w=7,ci=192,co=128,kh=1,kw=1"


@pytest.mark.parametrize("tail", [
    "dtype=f32,bias,epilogue=relu,weights=constant",
    "dtype=f32,init=accumulate,bias,epilogue=relu,weights=constant",
    "stride=2,dtype=f32,weights=constant",
    "dtype=f32,bias,epilogue=relu6",
])  # fmt: skip
@pytest.mark.parametrize("blocks", [Blocks(32, 64), Blocks(64, 0), Blocks(0, 64)], ids=str)
def test_one_pixel_filters_walk_the_blocks_of_a_chunk(
    tail: str, blocks: Blocks, host: Target
) -> None:
    problem = conv(f"{WALKED},{tail}")
    cols = 2 * host.lanes(problem.element.name)
    steps = (Stream("ci", 128), Tile("co", 64), Pack("B"), Register(3, min(cols, 64)), Unroll(2))
    check(problem, Schedule(steps), host, blocks, 3)


@pytest.mark.parametrize("tail", ["pad=1,dilation=2", "stride=2,pad=1", "stride=3"])
@pytest.mark.parametrize("packs", [True, False])
def test_wider_filters_read_a_block_at_a_time(tail: str, packs: bool, host: Target) -> None:
    if "pad" in tail and not packs:
        tail = tail.replace("pad=1", "pad=0")
    problem = conv(f"n=2,h=11,w=9,ci=96,co=64,kh=3,kw=2,{tail},dtype=f32,bias,weights=constant")
    steps: list[Step] = [Stream("ci", 32), Tile("co", 32), Pack("B")]
    steps += [Tile("n", 1), Tile("oh", 2), Pack("A")] if packs else []
    schedule = Schedule((*steps, Register(4, 16), Unroll(4)))
    check(problem, schedule, host, Blocks(32, 32), 4)


def test_halves_are_packed_from_blocks(host: Target) -> None:
    problem = conv("n=2,h=9,w=7,ci=64,co=64,kh=3,kw=3,pad=1,dtype=bf16,bias,weights=constant")
    steps = (Stream("ci", 32), Pack("B"), Tile("n", 1), Tile("oh", 4), Pack("A"), Register(4, 32))
    check(problem, Schedule(steps), host, Blocks(32, 64), 6)


@pytest.mark.parametrize("blocks", [Blocks(32, 64), Blocks(0, 32), Blocks(64, 0)], ids=str)
@pytest.mark.parametrize("init", ["", ",init=accumulate"])
def test_minimal_filtering_transforms_blocks(blocks: Blocks, init: str, host: Target) -> None:
    problem = conv("n=2,h=11,w=9,ci=64,co=64,kh=3,kw=3,pad=1,dtype=f32"
                   f"{init},bias,epilogue=relu,weights=constant")  # fmt: skip
    check(
        problem,
        Schedule((Winograd(4), Pack("B"), Tile("t", 12), Pack("A"), Register(6, 32, outer="cols"))),
        host,
        blocks,
        5,
    )


sizes = st.sampled_from([0, 16, 32, 64])


@st.composite
def cases(draw: st.DrawFn) -> tuple[Conv2d, Schedule, Blocks]:
    """Convolutions of every stride, halo and end, and schedules whose loops cut no block."""
    blocks = Blocks(draw(sizes), draw(sizes))
    kh, kw = draw(st.sampled_from([(1, 1), (1, 1), (3, 3), (2, 1)]))
    stride, dilation = draw(st.sampled_from([(1, 1), (2, 1), (1, 2)]))
    reach = dilation * (max(kh, kw) - 1) + 1
    parallel = draw(st.booleans())
    problem = Conv2d(
        layout="nhwc_hwcf", n=draw(st.integers(1, 2)), h=reach + draw(st.integers(0, 6)),
        w=reach + draw(st.integers(0, 8)), ci=(blocks.a or 5) * draw(st.integers(1, 4)),
        co=(blocks.c or 7) * (2 if parallel else draw(st.integers(1, 3))), kh=kh, kw=kw,
        stride=stride, dilation=dilation, dtype="f32",
        init=draw(st.sampled_from(["zero", "accumulate"])),
        bias=draw(st.booleans()), epilogue=draw(st.sampled_from(["none", "relu"])),
        weights=draw(st.sampled_from(["constant", "variable"])),
    )  # fmt: skip
    depth = blocks.a * draw(st.integers(1, 2)) if kh * kw == 1 else blocks.a
    steps: list[Step] = []
    if parallel and blocks.c:
        steps.append(Parallel("co", 2))
    if 0 < depth < problem.ci:
        steps.append(Stream("ci", depth))
    steps += [Pack("B")] if draw(st.booleans()) else []
    steps.append(Register(draw(st.integers(1, 5)), draw(st.sampled_from([16, blocks.c or 32]))))
    steps += [Unroll(draw(st.sampled_from([2, 4])))]
    return problem, Schedule(tuple(steps)), blocks


@settings(max_examples=8, deadline=None)
@given(case=cases(), seed=st.integers(0, 9))
def test_any_blocks_of_any_convolution(
    case: tuple[Conv2d, Schedule, Blocks], seed: int, host: Target
) -> None:
    problem, schedule, blocks = case
    check(problem, schedule, host, blocks, seed)


def test_the_nest_is_that_of_the_plain_image(host: Target) -> None:
    problem = conv(f"{WALKED},dtype=f32,weights=constant")
    schedule = Schedule((Stream("ci", 64), Pack("B"), Prefetch("B"), Register(4, 32)))
    nest = plan(problem, schedule, host).nest
    assert plan(problem, schedule, host, blocks=Blocks(64, 64)).nest == nest
    check(problem, schedule, host, Blocks(64, 64), 8)


@pytest.mark.parametrize("weights", ["constant", "variable"])
def test_what_is_fetched_ahead_counts_the_blocks_of_a_chunk(weights: str, host: Target) -> None:
    problem = conv(f"{WALKED},dtype=f32,bias,weights={weights}")
    steps = (
        Tile("co", 64),
        Stream("ci", 128),
        Pack("B"),
        Prefetch("B"),
        Register(4, 32),
        Unroll(4),
    )
    check(problem, Schedule(steps), host, Blocks(64, 64), 9)


PLAIN_STEPS = (Pack("B"), Register(3, 32))


@pytest.mark.parametrize(("tail", "steps", "blocks", "told"), [
    ("", PLAIN_STEPS, Blocks(a=80), "blocks of 80 in a do not divide the 192 channels of A"),
    ("", PLAIN_STEPS, Blocks(c=96), "do not divide the 128 channels of C"),
    ("", PLAIN_STEPS, Blocks(c=16), "are cut by 32 register columns; take a divisor"),
    ("", (Stream("ci", 48), *PLAIN_STEPS), Blocks(a=32), "stream ci by a multiple of 32"),
    (",layout=nchw_fchw", (Tile("n", 1), Register(3, 16)), Blocks(a=32), "need an nhwc"),
    (",groups=2", (Tile("g", 1), *PLAIN_STEPS), Blocks(a=32), "of one group"),
])  # fmt: skip
def test_blocks_that_loops_cut_are_refused(
    tail: str, steps: tuple[Step, ...], blocks: Blocks, told: str, host: Target
) -> None:
    problem = conv(f"{WALKED}{tail},dtype=f32,weights=constant")
    with pytest.raises(LoweringError, match=told):
        plan(problem, Schedule(steps), host, blocks=blocks)


def test_an_image_in_other_blocks_is_refused(host: Target) -> None:
    problem = conv(f"{WALKED},dtype=f32,weights=constant")
    executable = lower(problem, Schedule(PLAIN_STEPS), host, Blocks(a=32))
    assert executable.shape("A") == (2, 6, 5, 7, 32) and executable.shape("C") == (2, 5, 7, 128)
    with pytest.raises(LoweringError, match="operand A is"):
        executable.run(make_operands(problem, 0))
