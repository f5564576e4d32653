"""What sweeps fetch of the next pages of rows that end their pages together."""

import ctypes
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from llvmlite import ir

from tilewise.kernels.arithmetic import arithmetic_of, size_of
from tilewise.kernels.instructions import Form
from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.vectors import LINE_BYTES, Value, Vectors, const, internal_function
from tilewise.kernels.native.jit.engines import Loaded
from tilewise.kernels.native.jit.object_code import compile_module
from tilewise.kernels.native.microkernels.abi import SWEEP_ARGUMENTS, SweepArguments
from tilewise.kernels.native.microkernels.sweep.next_pages import FIRST_LINES, NextPages
from tilewise.kernels.native.microkernels.sweep.spec import PAGE_BYTES, SweepSpec
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import Target

PAGES = 3  # of a row
ROW = PAGES * PAGE_BYTES
BASE = 7 * PAGE_BYTES


def spec_of(dtype: str, depth: int, streams: int, target: Target) -> SweepSpec:
    """A sweep of one row over four chunks of rows that are three pages long."""
    problem = parse_problem(f"matmul:m=1,n=64,k=64,dtype={dtype}")
    return SweepSpec(
        how=arithmetic_of(problem, target, Form.SWEEP),
        all_rows=1, rows=1, vectors=4, lanes=16, depth=depth,
        streams=streams, whole=4 * depth, a_row=4 * depth, b_row=ROW // size_of(dtype),
        registers=32, epilogue=0, fetches_ahead=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "depth", "streams", "lines"),
    [("i8", 32, 1, 1), ("i8", 64, 1, 1), ("i8", 32, 8, 2), ("bf16", 32, 32, 2), ("f32", 32, 1, 4)],
)
def test_first_lines_of_all_next_pages(
    dtype: str,
    depth: int,
    streams: int,
    lines: int,
    monkeypatch: pytest.MonkeyPatch,
    host: Target,
) -> None:
    """A walk over one page fetches where each row of the chunk goes on, and the next chunk's."""
    spec = spec_of(dtype, depth, streams, host)
    fetched = fetches_of(spec, lines, monkeypatch)
    begins = [BASE + spec.step(place) * ROW for place in range(depth)]
    chunk = depth // streams * ROW  # from a row to the next chunk's
    for page in range(PAGES):
        found = {
            at
            for col in range(page * PAGE_BYTES, (page + 1) * PAGE_BYTES, lines * LINE_BYTES)
            for at in fetched(BASE, col, chunk - ROW)
        }
        on = (page + 1) * PAGE_BYTES if page + 1 < PAGES else chunk
        first = {begin + on + i * LINE_BYTES for begin in begins for i in range(FIRST_LINES)}
        assert found == first


@pytest.mark.parametrize("lines", [1, 2, 3, 4])
def test_a_row_that_hardly_enters_a_page_goes_on_at_the_next_chunk(
    lines: int, monkeypatch: pytest.MonkeyPatch, host: Target
) -> None:
    """Arrays often begin a few bytes behind a page, which is then where their rows end, too."""
    fetched = fetches_of(spec_of("i8", 32, 1, host), 1, monkeypatch)
    begin, wrap = BASE + lines * LINE_BYTES, 31 * ROW
    end = ROW - lines * LINE_BYTES  # of the last page but for what hardly counts
    found = {
        at for col in range(end - PAGE_BYTES, end, LINE_BYTES) for at in fetched(begin, col, wrap)
    }
    assert {begin + row * ROW + 32 * ROW for row in range(32)} <= found


def test_only_rows_a_multiple_of_a_page_apart_meet(host: Target) -> None:
    spec = spec_of("bf16", 32, 1, host)
    assert spec.rows_meet
    assert not replace(spec, depth=16).rows_meet  # so few stay in the first cache
    assert not replace(spec, b_row=spec.b_row + 1024).rows_meet
    assert replace(spec, b_row=spec.b_row + 2048).rows_meet


Fetches = Callable[[int, int, int], list[int]]


def fetches_of(spec: SweepSpec, lines: int, monkeypatch: pytest.MonkeyPatch) -> Fetches:
    """What is fetched beside a group, by where the first row begins, the group's column and `wrap`.

    All are in bytes. The code puts into memory what it else would fetch.
    """
    module = ir.Module("fetches")
    fn = internal_function(module, "tilewise_fetches", 4)
    b = Builder(fn.append_basic_block("entry"))
    begin, col, wrap, out = fn.args
    count = 0

    def put(_: Vectors, at: Value) -> None:
        nonlocal count
        pointer = b.inttoptr(b.add(out, const(8 * count)), at.type.as_pointer())
        b.store(at, pointer, align=8)
        count += 1

    monkeypatch.setattr(Vectors, "prefetch_to_l2", put)
    size, zero = size_of(spec.how.stored), const(0)
    arg = SweepArguments[Value](*[zero] * len(SWEEP_ARGUMENTS))
    arg = replace(arg, cols=const(ROW // size), wrap=wrap)
    NextPages(b, spec, arg).fetch(b.add(begin, col), b.sdiv(col, const(size)), lines)
    monkeypatch.undo()
    b.ret_void()
    loaded = Loaded(compile_module(module, [fn]))
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(loaded.addresses[0])

    def fetched(begin: int, col: int, wrap: int, _kept: Loaded = loaded) -> list[int]:
        taken = np.zeros(count, np.int64)
        run(begin, col, wrap, taken.ctypes.data)
        return [int(at) for at in taken if at]

    return fetched
