"""The fastest loop that reads a matrix again and again, and what fetching ahead adds.

    python -m benchmarks.reductions.reads_ahead [BYTES ...] [--rounds 21]

A product of one row or one column reads its matrix once, so that no kernel that begins at its first
byte is faster than the best of these loops. They load every line on 1 to 16 streams, 1 to 8 lines
of a stream at once, without and with prefetches to either cache some bytes ahead, from pages of
4 KiB and of 2 MiB, all in the same rounds on one core. GB/s, medians; the fastest of each kind, and
its share of the fastest of all.
"""

import argparse
import ctypes
import mmap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from statistics import median
from typing import Any

from llvmlite import ir

from tilewise.bench.machine import processor
from tilewise.kernels.native.ir.control import CountedLoop
from tilewise.kernels.native.ir.vectors import ELEMENTS, LINE_BYTES, Vectors, begin_function, const
from tilewise.kernels.native.jit.loading import Loaded
from tilewise.kernels.native.jit.object_code import compile_module
from tilewise.kernels.target import Target, resolve
from tilewise.search.timing.measure import interleave

SIZES = (4_000_000, 8_388_608)  # 1000x1000 and 4096x512 in f32
STREAMS = ((1, 1), (2, 1), (4, 1), (8, 1), (16, 1), (1, 8), (4, 4), (8, 2))
"""Streams, and lines of each at once, without prefetch."""
FETCHED = ((1, 4), (4, 2), (8, 1))
AHEAD = {"L1": (256, 512, 1024, 2048), "L2": (512, 1024, 2048, 4096, 16384)}
SUMS = 16
HUGE_PAGE = 2 << 20
PAGES = {"4 KiB": mmap.MADV_NOHUGEPAGE, "2 MiB": mmap.MADV_HUGEPAGE}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sizes", nargs="*", type=int, default=SIZES, metavar="BYTES")
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    target = resolve("host")
    print(processor())
    compiled = [(loop, emitted(loop, target)) for loop in loops()]
    for size in options.sizes:
        print(table(size, compiled, options.rounds), flush=True)


@dataclass(frozen=True)
class ReadLoop:
    """How a loop reads.

    Attributes:
        streams: equal parts of the memory that are read side by side.
        lines: of each stream in a step.
        cache: that prefetches bring lines to; empty without prefetches.
        ahead: bytes from a load to what is prefetched beside it.
    """

    streams: int
    lines: int
    cache: str = ""
    ahead: int = 0


def loops() -> Iterator[ReadLoop]:
    """All that are timed."""
    for streams, lines in STREAMS:
        yield ReadLoop(streams, lines)
    for cache, distances in AHEAD.items():
        for streams, lines in FETCHED:
            for ahead in distances:
                yield ReadLoop(streams, lines, cache, ahead)


def emitted(loop: ReadLoop, target: Target) -> Callable[[int, int], None]:
    """The loop as a function of an address and bytes; it loads all whole steps of them."""
    module = ir.Module("reads")
    fn, b, given = begin_function(module, "tilewise_read_ahead", ("address", "size"))
    address, size = given["address"], given["size"]
    v = Vectors(b, ELEMENTS["f32"], target.lanes("f32"), target.has_fma)
    step = loop.lines * LINE_BYTES
    whole = b.sdiv(size, const(loop.streams * step))
    walk = CountedLoop(b, [v.zero] * SUMS, "step")
    sums = list(walk.carried)
    for index in range(loop.streams * loop.lines):
        stream, line = divmod(index, loop.lines)
        begin = b.mul(b.add(b.mul(whole, const(stream)), walk.index), const(step))
        at = b.add(address, b.add(begin, const(line * LINE_BYTES)))
        if loop.cache:
            v.prefetch(b.add(at, const(loop.ahead)), 1 if loop.cache == "L1" else 2)
        for place in range(0, LINE_BYTES, target.vector_bytes):
            taken = index % SUMS
            sums[taken] = v.add(sums[taken], v.load(b.add(at, const(place))))
    v.store(reduce(v.add, walk.close(sums, whole, 1)), address)
    b.ret_void()
    loaded = Loaded(compile_module(module, [fn]))
    function = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(loaded.addresses[0])

    def run(address: int, size: int, _kept: Loaded = loaded) -> None:
        function(address, size)

    return run


def table(size: int, compiled: list[tuple[ReadLoop, Any]], rounds: int) -> str:
    """The fastest loop of each kind, from pages of either size."""
    names, runs, kept = [], [], []
    for pages, advice in PAGES.items():
        memory = mmap.mmap(-1, size + 2 * HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(advice)
        kept.append(memory)
        first = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        begin = first + -first % HUGE_PAGE
        ctypes.memset(begin, 0, size)
        for loop, read in compiled:
            names.append((pages, loop))
            runs.append(partial(repeated, read, begin, size))
    taken = interleave(runs, rounds)
    speeds = [size / median(samples.times) / 1e9 for samples in taken]
    best = max(speeds)
    found: dict[tuple[str, str], tuple[float, ReadLoop]] = {}
    for (pages, loop), speed in zip(names, speeds, strict=True):
        kind = (pages, f"to {loop.cache}" if loop.cache else "plain")
        found[kind] = max(found.get(kind, (0.0, loop)), (speed, loop), key=lambda pair: pair[0])
    lines = [
        f"  {pages:<6} {kind:<6} {speed:>6.1f} {speed / best:>5.0%}  {loop.streams} streams, "
        f"{loop.lines} lines at once" + (f", {loop.ahead} bytes ahead" if loop.cache else "")
        for (pages, kind), (speed, loop) in found.items()
    ]
    return "\n".join([f"{size / 1e6:.1f} MB", *lines])


def repeated(read: Callable[[int, int], None], address: int, size: int, times: int = 1) -> None:
    """So many runs of a loop over the same memory."""
    for _ in range(times):
        read(address, size)


if __name__ == "__main__":
    main()
