"""Native kernels that sweep: results of few rows, B read in place in whole rows."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tests.cases import some
from tests.kernels.native_case import TARGETS, check
from tilewise.kernels.arithmetic import arithmetic_of
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.instructions import Form
from tilewise.kernels.native import lower
from tilewise.kernels.native.microkernels.skinny_products import MOST_SHARING_ROWS
from tilewise.kernels.native.plan import plan
from tilewise.kernels.oracle.operands import make_operands, to_bf16
from tilewise.kernels.problem import DTYPES, Matmul, parse_problem
from tilewise.kernels.schedule import (
    Interleave,
    Parallel,
    Prefetch,
    Register,
    Schedule,
    Stream,
    Sweep,
    Tile,
)
from tilewise.kernels.target import Target


def swept(problem: Matmul, target: Target, vectors: int, depth: int, *before: Tile) -> Schedule:
    """All rows at once, `depth` words of each."""
    deep = arithmetic_of(problem, target, Form.SKINNY).depth
    cols = vectors * target.lanes(problem.dtype)
    return Schedule((*before, Stream("k", deep * depth), Register(problem.m, cols), Sweep("n")))


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8"])
@pytest.mark.parametrize("n", [1, 15, 64, 65, 200])
def test_columns_that_fill_no_vector(n: int, dtype: str, host: Target) -> None:
    problem = Matmul(m=2, n=n, k=37, dtype=dtype, bias=True, init="accumulate")
    check(problem, swept(problem, host, 4, 1), host, 3)


def test_blocks_batches_and_threads(host: Target) -> None:
    problem = Matmul(batch=3, m=3, n=300, k=50, dtype="bf16")
    steps = (Tile("batch", 1), Tile("n", 64), Prefetch("B"), Stream("k", 4))
    check(problem, Schedule((*steps, Register(3, 32), Sweep("n"))), host, 1)
    divided = Schedule((Parallel("n", 2), *steps, Register(3, 32), Sweep("n")))
    check(problem, divided, host.with_threads(2), 2)


@pytest.mark.full
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"{t.vector_bytes}B{len(t.features)}")
@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize(("m", "rows"), [(16, 6), (7, 3), (9, 1), (12, 4)])
def test_register_tiles_of_rows_one_after_the_other(
    m: int, rows: int, dtype: str, target: Target
) -> None:
    problem = Matmul(m=m, n=131, k=39, dtype=dtype, bias=True, init="accumulate", epilogue="relu")
    deep = arithmetic_of(problem, target, Form.SKINNY).depth
    register = Register(rows, 4 * target.lanes(dtype), "rows")
    for before in ((), (Prefetch("B"),), (Tile("n", register.cols), Prefetch("B"))):
        check(problem, Schedule((*before[:-1], Stream("k", 2 * deep), *before[-1:], register,
                                 Sweep("n"))), target, rows)  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"{t.vector_bytes}B{len(t.features)}")
@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize(("streams", "depth", "k"), [(4, 8, 103), (2, 4, 43), (8, 8, 23)])
def test_streams_from_parts_of_the_reduction(
    streams: int, depth: int, k: int, dtype: str, target: Target
) -> None:
    """Whole chunks and what is left; the first, the last and those between; one chunk alone."""
    problem = Matmul(m=1, n=211, k=k, dtype=dtype, bias=True, init="accumulate", epilogue="relu")
    register = Register(1, 4 * target.lanes(dtype))
    steps = (Stream("k", depth), register, Sweep("n"), Interleave("k", streams))
    for before in ((), (Tile("n", 2 * register.cols), Prefetch("B"))):
        check(problem, Schedule((*before[:1], steps[0], *before[1:], *steps[1:])), target, k)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8"])
def test_streams_of_several_rows_batches_and_threads(dtype: str, host: Target) -> None:
    problem = Matmul(batch=2, m=7, n=331, k=70, dtype=dtype)
    cols = 4 * host.lanes(dtype)
    tail = (Stream("k", 8), Prefetch("B"), Register(3, cols, "rows"), Sweep("n"),
            Interleave("k", 4))  # fmt: skip
    check(problem, Schedule((Tile("batch", 1), *tail)), host, 1)
    divided = (Parallel("n", 2), Tile("batch", 1), Tile("n", cols), *tail)
    check(problem, Schedule(divided), host.with_threads(2), 2)


@pytest.mark.parametrize(("dtype", "cols"), [("bf16", 32), ("i8", 64), ("i8", 128)])
def test_blocks_of_rows_and_threads_along_them(dtype: str, cols: int, host: Target) -> None:
    problem = Matmul(m=19, n=210, k=33, dtype=dtype)
    tail = (Stream("k", 4), Prefetch("B"), Tile("m", 8), Register(4, cols, "rows"), Sweep("n"))
    check(problem, Schedule(tail), host, 1)
    check(problem, Schedule((Parallel("m", 2), *tail)), host.with_threads(2), 2)


@pytest.mark.parametrize("epilogue", ["none", "relu"])
def test_sums_of_blocks_within_a_chunk_lie_apart(epilogue: str, host: Target) -> None:
    problem = Matmul(batch=3, m=19, n=410, k=61, dtype="i8", init="accumulate", epilogue=epilogue)
    cols = 4 * host.lanes("i8")
    stream, lead, tail = Stream("k", 8), Tile("batch", 1), (Register(3, cols, "rows"), Sweep("n"))
    blocks = (Tile("m", 9), Tile("n", 2 * cols), Tile("n", 3 * cols))
    for inside in ((lead, *blocks[:2]), (blocks[2], lead, blocks[0]), (blocks[1], blocks[0], lead)):
        check(problem, Schedule((stream, *inside, *tail)), host, len(inside))
    check(problem, Schedule((lead, blocks[0], stream, blocks[1], *tail)), host, 4)
    divided = (Parallel("n", 2), lead, stream, *blocks[:2], *tail)
    check(problem, Schedule(divided), host.with_threads(2), 5)


@pytest.mark.parametrize(
    "m", some([19, MOST_SHARING_ROWS + 5], of=2)
)  # of so many rows none share words
def test_long_chunks_for_few_rows_and_for_many(m: int, host: Target) -> None:
    problem = Matmul(m=m, n=151, k=133, dtype="i8")
    tail = (Stream("k", 64), Register(8, 4 * host.lanes("i8"), "rows"), Sweep("n"))
    check(problem, Schedule(tail), host, 1)


def test_one_row_of_a_transposed_factor_is_contiguous(host: Target) -> None:
    problem = Matmul(m=1, n=70, k=33, dtype="i8", transpose_a=True)
    check(problem, swept(problem, host, 4, 2), host, 4)


def test_i8_extremes_are_exact(host: Target) -> None:
    problem = Matmul(m=2, n=130, k=1001, dtype="i8")
    between = swept(problem, host, 4, 4)
    apart = Schedule((*between.steps, Interleave("k", 4)))
    shared = (Stream("k", 64), Register(1, 4 * host.lanes("i8"), "rows"), Sweep("n"))
    schedules = between, apart, Schedule(shared)
    for (a, b), schedule in product(((-128, -128), (127, -128), (-128, 127)), schedules):
        operands = make_operands(problem, 0)
        operands["A"][...], operands["B"][...] = a, b
        lower(problem, schedule, host).run(operands)
        assert (operands["C"] == a * b * 1001).all()


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("streams", [1, 2])
def test_what_is_not_finite_stays_in_its_column(
    streams: int, value: float, dtype: str, host: Target
) -> None:
    problem = Matmul(m=3, n=75, k=21, dtype=dtype)
    operands = make_operands(problem, 0)
    bad = np.array([value], np.float32)
    operands["B"][20, 40] = to_bf16(bad)[0] if dtype == "bf16" else bad[0]
    schedule = swept(problem, host, 2, 2)
    if streams > 1:
        schedule = Schedule((*schedule.steps, Interleave("k", streams)))
    lower(problem, schedule, host).run(operands)
    assert np.array_equal(~np.isfinite(operands["C"]).any(0), np.arange(75) == 40)


def test_refusals(host: Target) -> None:
    problem = Matmul(m=1, n=64, k=64, dtype="f32")
    odd = Schedule((Stream("k", 8), Register(1, 17), Sweep("n")))
    with pytest.raises(LoweringError, match="cols=17 is not a multiple"):
        plan(problem, odd, host)
    pairs = replace(host, vector_bytes=64, features=host.features | {"avx512bf16"})
    with pytest.raises(LoweringError, match="no multiple of the 2"):
        narrow = parse_problem(str(problem).replace("f32", "bf16"))
        plan(narrow, Schedule((Stream("k", 3), Register(1, 16), Sweep("n"))), pairs)
    many = (Stream("k", 32), Register(4, 32, "rows"), Sweep("n"), Interleave("k", 8))
    with pytest.raises(LoweringError, match="16 words of 4 rows of A, gathered from 8 streams"):
        plan(replace(narrow, m=8), Schedule(many), pairs)
