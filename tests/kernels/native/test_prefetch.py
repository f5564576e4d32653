"""Which rows of B's next block the micro-kernels are asked to fetch, by the printed driver."""

import ast
import ctypes
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Literal

import numpy as np
import pytest
from llvmlite import ir

from tilewise.kernels.arithmetic import size_of
from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.vectors import LINE_BYTES, Value, Vectors, const, internal_function
from tilewise.kernels.native.jit.loading import Loaded
from tilewise.kernels.native.jit.object_code import compile_module
from tilewise.kernels.native.microkernels.abi import SkinnyGemmArguments
from tilewise.kernels.native.microkernels.skinny_products import SkinnyGemmSpec, SpreadFetch
from tilewise.kernels.native.plan import KernelPlan, plan
from tilewise.kernels.nest import Fetch, Fetched
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import (
    Interleave,
    Pack,
    Prefetch,
    Register,
    Schedule,
    Step,
    Stream,
    Sweep,
    Tile,
)
from tilewise.kernels.target import Target

B = 1 << 40


class OfBlocks(ast.NodeTransformer):
    """A driver that says when it comes to another block of B."""

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        begins = ast.unparse(node).startswith("fetching = min")
        return [node, *(ast.parse("begin_block()").body if begins else [])]


def run_driver(planned: KernelPlan, base: str, begin_block: Callable[[], None],
               call_address: Callable[..., None]) -> None:  # fmt: skip
    """Run the driver in Python, on a micro-kernel that does nothing but note what it is given."""

    def nothing(*_: object) -> None: ...

    names: dict[str, Callable[..., object]] = {
        "njit": lambda *_, **__: lambda function: function,
        "word": lambda given, index: given[index],
        **dict.fromkeys(("add_word", "pack_b", "pack_image"), nothing),
        "call_address": call_address,
        "begin_block": begin_block,
    }
    driver = OfBlocks().visit(ast.parse(planned.source.text))
    driver.body = [node for node in driver.body if not isinstance(node, ast.ImportFrom)]
    exec(compile(ast.fix_missing_locations(driver), "driver", "exec"), names)
    sizes = dict.fromkeys(planned.source.parameters, 0) | planned.sizes | {base: B}
    names["driver"]([sizes[name] for name in planned.source.parameters])


def asked(
    text: str, steps: tuple[Step, ...], target: Target, fetching: list[bool] | None = None
) -> list[list[int]]:
    """For each block of B the addresses that are fetched while it is computed on, sorted.

    In `fetching`, whether a call fetches.
    """
    planned = plan(parse_problem(text), Schedule(steps), target)
    blocks: list[list[int]] = []
    calls = [] if fetching is None else fetching

    def call_address(_function: int, *given: int) -> None:
        *_, depth, _flags, _rows, _cols, _beside, ahead, step, _zero = given
        tap_rows, tap_cols = given[8:10]
        if step:
            iterations = tap_rows * tap_cols * (depth // planned.spec.unroll)
            lines = range(0, LINE_BYTES * planned.spec.prefetched, LINE_BYTES)
            blocks[-1].extend(ahead + i * step + at for i in range(iterations) for at in lines)
        calls.append(bool(step))

    run_driver(planned, "b", lambda: blocks.append([]), call_address)
    return [sorted(block) for block in blocks]


def rows(first: int, count: int, row_bytes: int, col_bytes: int, panels: int) -> list[int]:
    """Addresses of the lines of a block's panels, from a byte of B on, sorted."""
    return sorted(
        B + first + panel * col_bytes + row * row_bytes + at
        for panel in range(panels)
        for row in range(count)
        for at in range(0, col_bytes, LINE_BYTES)
    )


def test_of_a_streamed_reduction_the_next_chunk_is_fetched_then_the_next_columns(
    host: Target,
) -> None:
    cols = 2 * host.lanes("f32")
    n = 4 * cols
    steps = (Tile("n", 2 * cols), Stream("k", 24), Pack("B"), Prefetch("B"), Register(4, cols))
    found = asked(f"matmul:m=8,n={n},k=48,dtype=f32", steps, host)
    chunk, block = 24 * n * 4, 2 * cols * 4
    nexts = [chunk, block, block + chunk]
    expected = [rows(first, 24, n * 4, cols * 4, 2) for first in nexts]
    assert found[:-1] == expected
    assert len(found) == 4


@pytest.mark.parametrize("packs", [(Pack("B"),), ()])
@pytest.mark.parametrize("outer", ["cols", "rows"])
def test_the_last_calls_of_a_block_fetch_the_next(
    packs: tuple[Step, ...], outer: Literal["cols", "rows"], host: Target
) -> None:
    """Two of the twelve for each panel; those of the first block cannot know which are the last."""
    cols = 2 * host.lanes("f32")
    lines = -(-cols * 4 // LINE_BYTES)
    steps = (Tile("n", 2 * cols), *packs, Prefetch("B"), Tile("m", 24), Register(4, cols, outer))
    fetching: list[bool] = []
    found = asked(f"matmul:m=48,n={6 * cols},k=10,dtype=f32", steps, host, fetching)
    blocks = [rows(2 * at * cols * 4, 10, 6 * cols * 4, cols * 4, 2) for at in (1, 2)]
    assert found[:2] == blocks
    late = [False] * (24 - 2 * lines) + [True] * 2 * lines
    assert fetching[:48] == [*late[::-1], *late]


VECTORS, DEPTH, CHUNKS = 4, 8, 3
WRAP = 1 << 20
ONE_ROW = Fetch("B", Fetched.ROWS_AHEAD, 256, level=1)
SEVERAL = Fetch("B", Fetched.ROWS_AHEAD, 512, level=2)


@pytest.mark.parametrize("fetch", [ONE_ROW, SEVERAL], ids=["L1", "L2"])
@pytest.mark.parametrize(("tiles", "streams"), [(1, 1), (2, 1), (3, 1), (1, 2), (1, 8)])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8"])
def test_tiles_together_fetch_each_line_of_the_rows_ahead(
    dtype: str,
    tiles: int,
    streams: int,
    fetch: Fetch,
    monkeypatch: pytest.MonkeyPatch,
    host: Target,
) -> None:
    """Further on in the chunk's rows, and behind their end where the next chunk's rows begin."""
    size = size_of(dtype)
    group = VECTORS * host.lanes(dtype)
    cols = 3 * group
    row = cols + LINE_BYTES // size
    apart = () if streams == 1 else (Interleave("k", streams),)
    steps = (Stream("k", DEPTH), Register(1, group), Sweep("n"), *apart)
    problem = parse_problem(f"matmul:m=1,n={row},k={CHUNKS * DEPTH},dtype={dtype}")
    spec = plan(problem, Schedule(steps), host).spec
    assert isinstance(spec, SkinnyGemmSpec)
    share = -(-DEPTH // tiles)
    rows = [
        place % streams * (CHUNKS * DEPTH // streams) + place // streams for place in range(DEPTH)
    ]
    for col in range(0, cols, group):
        found = [
            line
            for tile in range(tiles)
            for line in fetched(spec, fetch, (tile * share, share), (col, cols), monkeypatch)
        ]
        at = col * size + fetch.distance
        at += WRAP * (at >= cols * size)
        expected = {
            (place * row * size + at + line, fetch.level)
            for place in rows
            for line in range(0, group * size, LINE_BYTES)
        }
        assert expected <= set(found)
        assert len(found) == len(set(found)) == tiles * share * group * size // LINE_BYTES


def fetched(
    spec: SkinnyGemmSpec,
    fetch: Fetch,
    rows: tuple[int, int],
    cols: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> list[tuple[int, int]]:
    """Addresses and levels beside the words of a chunk that begins at 0.

    Of `rows` in a group of columns; `cols` are its first one and how many a row has. The code
    stores the addresses in place of prefetching them.
    """
    module = ir.Module("fetches")
    fn = internal_function(module, "tilewise_fetches", 1)
    b, levels = Builder(fn.append_basic_block("entry")), list[int]()

    def put(_: Vectors, at: Value, level: int) -> None:
        pointer = b.inttoptr(b.add(fn.args[0], const(8 * len(levels))), at.type.as_pointer())
        b.store(at, pointer, align=8)
        levels.append(level)

    zero, (first, count), (col, all_cols) = const(0), rows, cols
    arg = SkinnyGemmArguments[Value](*[zero] * len(fields(SkinnyGemmArguments)))
    arg = replace(arg, cols=const(all_cols), wrap=const(WRAP))
    with monkeypatch.context() as patched:
        patched.setattr(Vectors, "prefetch", put)
        spread = SpreadFetch(b, spec, arg, fetch, const(first), count, const(col), VECTORS)
        for word in range(spec.words):
            spread.before(word)
    b.ret_void()
    loaded = Loaded(compile_module(module, [fn]))
    found = np.zeros(len(levels), np.int64)
    ctypes.CFUNCTYPE(None, ctypes.c_int64)(loaded.addresses[0])(found.ctypes.data)
    return list(zip(map(int, found), levels, strict=True))
