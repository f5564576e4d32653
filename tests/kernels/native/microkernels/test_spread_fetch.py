"""Which rows of B sweeps fetch ahead, and to which cache."""

import ctypes
from dataclasses import fields, replace

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
from tilewise.kernels.native.plan import plan
from tilewise.kernels.nest import Fetch, Fetched
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Interleave, Register, Schedule, Stream, Sweep
from tilewise.kernels.target import Target

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
