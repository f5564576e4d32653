"""The limits of a machine, on one core or several: multiply-add peak per dtype, and bandwidth.

The peak is a loop of independent multiply-adds on registers, with enough of them to cover latency x
throughput; integers multiply and add, as an i32 matmul must. The bandwidth is a loop of
whole-vector loads over a buffer far larger than the last cache, on as many streams as the
prefetchers follow.
"""

import ctypes
import functools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from llvmlite import ir

from tilewise.kernels.arithmetic import WeightOnly, arithmetic_of
from tilewise.kernels.errors import TargetError
from tilewise.kernels.instructions import (
    WITH_CHOICE,
    Form,
    Instruction,
    chosen,
    instructions,
    known_instruction,
)
from tilewise.kernels.native.ir.control import CountedLoop
from tilewise.kernels.native.ir.dot_products import multiply_add
from tilewise.kernels.native.ir.vectors import ELEMENTS, LINE_BYTES, Vectors, begin_function, const
from tilewise.kernels.native.jit.loading import Loaded
from tilewise.kernels.native.jit.object_code import compile_module
from tilewise.kernels.native.microkernels.matrix_tiles_code import TILE, Tiles
from tilewise.kernels.native.threads.pinning import pin, usable_processors
from tilewise.kernels.oracle.operands import to_bf16
from tilewise.kernels.problem import Problem
from tilewise.kernels.problem.keys import BF16X3, WEIGHTS
from tilewise.kernels.target import detect
from tilewise.kernels.target.machine import keep_rates
from tilewise.kernels.target.model import Target

CHAINS = {32: 20, 16: 12}  # by registers: covers 4 to 5 cycles of latency on two units
MOST_VECTOR_BYTES = 64
TILE_CHAINS = 4  # products of tiles, which cover their latency
PEAK_STEPS = 50_000
PEAK_ROUNDS = 15
CONFIRMING, AGREEING, PATIENCE = 3, 1.02, 10
STREAMS = 4
_FORMS_OF_WEIGHTS = (Form.OUTER_PRODUCT, Form.TILES)
BUFFER_BYTES = 128 << 20
LEAST_BUFFER_PER_CACHE = 4

_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_loaded: list[Loaded] = []  # what the functions' addresses point into


def peak_gflops(target: Target, dtype: str) -> float:
    """Return the multiply-adds of the target's threads for `dtype`: GFLOP/s, two operations each.

    Of several instructions for the type, the fastest counts.
    """
    return max(_instruction_gflops(target, dtype, op) for op in _instructions(target, dtype))


def peak_of(target: Target, problem: Problem) -> float:
    """Return the multiply-adds for a problem; those of quantised weights have several products."""
    if problem.accuracy == BF16X3 and instructions("bf16", target, Form.TILES):
        return peak_gflops(target, "bf16") / 3
    if problem.quantised_weights is None:
        return peak_gflops(target, problem.element.name)
    forms = (form for form in _FORMS_OF_WEIGHTS if instructions(WEIGHTS, target, form))
    ways = (arithmetic_of(problem, target, form) for form in forms)
    return max(
        _instruction_gflops(target, how.packed, how.instruction.name) / how.products
        for how in ways
        if isinstance(how, WeightOnly)
    )


def measure_rates(target: Target) -> dict[str, float]:
    """Return the GFLOP/s of one thread by instruction, of the types with several, and keep them."""
    one = target.with_threads(1)
    rates = {
        op: round(_instruction_gflops(one, dtype, op), 2)
        for dtype in sorted(WITH_CHOICE)
        for op in _instructions(target, dtype)
    }
    keep_rates(rates)
    return rates


def _instructions(target: Target, dtype: str) -> list[str]:
    """The instructions for a type, in any form but the depthwise one."""
    forms = (Form.OUTER_PRODUCT, Form.SPLIT, Form.TILES)
    found = (one.name for form in forms for one in instructions(dtype, target, form))
    return list(dict.fromkeys(found))


def _instruction_gflops(target: Target, dtype: str, op: str) -> float:
    run, operations = multiplier(target, dtype, op)
    works = [_factors(dtype, op) for _ in range(target.threads)]
    given = [(work.ctypes.data, PEAK_STEPS * target.threads) for work in works]
    best = _least_time(run, given, PEAK_ROUNDS)
    return float(operations) * PEAK_STEPS * target.threads**2 / best / 1e9


def _factors(dtype: str, op: str) -> "np.typing.NDArray[np.uint8]":
    """What is multiplied; two tiles are random: with zeros the clock is a quarter higher.

    The bits of bf16 are no infinities or NaNs of f16 either.
    """
    if Form.TILES not in known_instruction(op).forms:
        return np.ones(MOST_VECTOR_BYTES, np.uint8)
    random = np.random.default_rng(0)
    if known_instruction(op).c == "i32":
        return random.integers(-100, 100, 2 * TILE * LINE_BYTES, np.int8).view(np.uint8)
    return to_bf16(random.standard_normal(TILE * LINE_BYTES, np.float32)).view(np.uint8)


def multiplier(
    target: Target, dtype: str, op: str | None = None
) -> tuple[Callable[[int, int], Any], int]:
    """Return what `peak_gflops` times: f(address, steps), and the operations of a step.

    A vector, or two tiles, are read at the address, and nothing is written there.

    Args:
        target: where.
        dtype: of the factors.
        op: the instruction; by default the one that is chosen for the type.
    """
    op, chains = op or chosen(dtype, target), CHAINS[target.vector_registers]
    one, lanes = known_instruction(op), target.lanes(dtype)
    if one.words > 1:
        operations = 2 * TILE_CHAINS * one.cols * one.products
        return _compiled(one, one.c, lanes, TILE_CHAINS), operations
    return _compiled(one, one.c, lanes, chains), 2 * chains * lanes * one.k


def bandwidth_gbs(target: Target) -> float:
    """Return what the target's threads read from memory, in GB/s."""
    size = max(BUFFER_BYTES, LEAST_BUFFER_PER_CACHE * target.l3_bytes)
    run = reader(target, STREAMS)
    buffers = [np.ones(size // 4, np.float32) for _ in range(target.threads)]
    step = target.vector_bytes
    steps = size // (STREAMS * step)
    best = _least_time(run, [(buffer.ctypes.data, steps) for buffer in buffers], 3)
    return target.threads * STREAMS * steps * step / best / 1e9


def reader(target: Target, streams: int) -> Callable[[int, int], Any]:
    """Return what `bandwidth_gbs` times: f(address, steps) loads `streams` vectors in each step.

    The streams are equal parts of the memory that begins at the address, one behind the other.
    Nothing is written there.
    """
    return _compiled(None, "f32", target.lanes("f32"), streams)


def _least_time(run: Callable[[int, int], Any], given: list[tuple[int, int]], rounds: int) -> float:
    """Seconds of the fastest round in which pinned threads run at once, one for each pair."""
    if len(given) == 1:
        return _confirmed_least(run, given[0], rounds)
    processors = usable_processors()
    if len(given) > len(processors):
        raise TargetError(f"{len(given)} threads on {len(processors)} processors; give fewer")
    together = threading.Barrier(len(given))

    def work(processor: int, arguments: tuple[int, int]) -> list[tuple[float, float]]:
        pin({processor})
        spans = []
        for _ in range(rounds + 1):
            together.wait()
            begin = time.perf_counter()
            run(*arguments)
            spans.append((begin, time.perf_counter()))
        return spans

    with ThreadPoolExecutor(len(given)) as pool:
        spans: list[list[tuple[float, float]]] = list(pool.map(work, processors, given))
    least: float = min(
        max(end for _, end in one) - min(begin for begin, _ in one)
        for one in zip(*spans, strict=True)
    )
    return least


def _confirmed_least(
    run: Callable[[int, int], Any], arguments: tuple[int, int], rounds: int
) -> float:
    """The least time of one thread, once `CONFIRMING` rounds agree on it.

    On a busy machine nearly all rounds may be disturbed: it takes more of them then, up to
    `PATIENCE` times as many.
    """
    times: list[float] = []
    while len(times) <= rounds or (len(times) < PATIENCE * rounds and not _agree(times)):
        times.append(_timed(run, *arguments))
    return min(times)


def _agree(times: list[float]) -> bool:
    fastest = sorted(times)[:CONFIRMING]
    return fastest[-1] <= AGREEING * fastest[0]


def _timed(run: Callable[[int, int], Any], address: int, steps: int) -> float:
    """Seconds that this thread computed: what others do meanwhile counts for nothing."""
    begin = time.thread_time()
    run(address, steps)
    return time.thread_time() - begin


@functools.cache
def _compiled(
    one: Instruction | None, element: str, lanes: int, width: int
) -> Callable[[int, int], Any]:
    """The loop of an instruction, or of loads: f(address, steps), which is never freed.

    It writes its sums, which nobody reads, to memory of its own.
    """
    module = ir.Module("limits")
    name = "tilewise_peak" if one else "tilewise_read"
    fn, builder, _ = begin_function(module, name, ("address", "steps", "to"))
    v = Vectors(builder, ELEMENTS[element], lanes)
    if one and one.words > 1:
        _emit_tile_peak(fn, v, one)
    elif one:
        _emit_peak(fn, v, one, width)
    else:
        _emit_read(fn, v, width)
    loaded = Loaded(compile_module(module, [fn]))
    _loaded.append(loaded)
    run, sums = _TYPE(loaded.addresses[0]), np.empty(lanes * v.element.bytes, np.uint8)
    return lambda address, steps: run(address, steps, sums.ctypes.data)


def _emit_peak(fn: ir.Function, v: Vectors, one: Instruction, chains: int) -> None:
    address, steps, to = fn.args
    if one.pairs:
        v = Vectors(v.builder, ELEMENTS[one.pairs], 2 * v.lanes)
    x = v.load(address)
    one = replace(one, widened="", b=one.widened or one.b)  # as the micro-kernel multiplies
    loop = CountedLoop(v.builder, [v.zero] * chains, "chain")
    # A product of an accumulator stays in the loop; chains of others collapse into one multiply.
    is_product = not (one.adds or v.element.is_float)
    sums = [multiply_add(v, one, acc if is_product else x, x, acc) for acc in loop.carried]
    sums = loop.close(sums, steps, 1)
    v.store(functools.reduce(v.add, sums), to)
    v.builder.ret_void()


def _emit_tile_peak(fn: ir.Function, v: Vectors, one: Instruction) -> None:
    """Emit products of tiles that stay in registers, with two rows and two columns of sums."""
    address, steps, _ = fn.args
    b = v.builder
    tiles = Tiles(b, b.ptrtoint(b.alloca(v.type)), 2, 2)
    whole = const(2 * TILE)
    tiles.configure(whole, whole)
    registers, row = tiles.registers, const(LINE_BYTES)
    for i in range(2):
        tiles.load(registers.a(i), address, row)
        tiles.load(registers.b(i), b.add(address, const(TILE * LINE_BYTES)), row)
    for i, j in tiles.grid:
        tiles.zero(registers.c(i, j))
    loop = CountedLoop(b, (), "chain")
    for i, j in tiles.grid:
        tiles.multiply(one.intrinsic, registers.c(i, j), registers.a(i), registers.b(j))
    loop.close((), steps, 1)
    tiles.release()
    b.ret_void()


def _emit_read(fn: ir.Function, v: Vectors, streams: int) -> None:
    address, steps, to = fn.args
    b = v.builder
    stream = b.mul(steps, const(v.lanes))
    loop = CountedLoop(b, [v.zero] * streams, "line")
    sums = []
    for s, acc in enumerate(loop.carried):
        at = b.add(b.mul(stream, const(s)), b.mul(loop.index, const(v.lanes)))
        sums.append(v.add(acc, v.load(v.offset(address, at))))
    sums = loop.close(sums, steps, 1)
    v.store(functools.reduce(v.add, sums), to)
    b.ret_void()


if __name__ == "__main__":  # see `tilewise.kernels.instructions.registry`
    measure_rates(detect())
