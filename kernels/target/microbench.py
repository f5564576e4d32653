"""The two limits of a core, measured: multiply-add peak per dtype, and memory bandwidth.

The peak is a loop of independent multiply-adds on registers, with enough of them to
cover latency x throughput; integers multiply and add, as an i32 matmul must. The
bandwidth is a loop of whole-vector loads over a buffer far larger than the last cache,
on as many streams as the prefetchers follow.
"""

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import cfunc, types
from numba.extending import intrinsic

from kernels.arithmetic import Arithmetic, arithmetic
from kernels.native.control import Loop
from kernels.native.dot import multiply_add
from kernels.native.vector_ir import ELEMENTS, Vectors, const, internal_function
from kernels.target.model import Target

CHAINS = {32: 20, 16: 12}  # by registers: covers 4 to 5 cycles of latency on two units
PEAK_STEPS = 50_000
PEAK_ROUNDS = 15
STREAMS = 4
BUFFER_BYTES = 128 << 20
LEAST_BUFFER_PER_CACHE = 4


def peak_gflops(target: Target, dtype: str) -> float:
    """Multiply-adds of one core for `dtype`, in GFLOP/s (two operations each)."""
    chains = CHAINS[target.vector_registers]
    how = arithmetic(dtype, target)
    run = _compiled("peak", how, target.lanes(dtype), target.has_fma, chains)
    work = np.ones(target.vector_bytes * 2, np.uint8)
    best = _least_time(lambda: run(work.ctypes.data, PEAK_STEPS), PEAK_ROUNDS)
    return 2.0 * chains * target.lanes(dtype) * how.depth * PEAK_STEPS / best / 1e9


def bandwidth_gbs(target: Target) -> float:
    """Bytes that one core reads from memory, in GB/s."""
    size = max(BUFFER_BYTES, LEAST_BUFFER_PER_CACHE * target.l3_bytes)
    how = arithmetic("f32", target)
    run = _compiled("read", how, target.lanes("f32"), target.has_fma, STREAMS)
    buffer = np.ones(size // 4, np.float32)
    step = target.vector_bytes
    steps = buffer.nbytes // (STREAMS * step)
    best = _least_time(lambda: run(buffer.ctypes.data, steps), 3)
    return STREAMS * steps * step / best / 1e9


def _least_time(run: Callable[[], Any], rounds: int) -> float:
    run()
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


@functools.cache
def _compiled(kind: str, how: Arithmetic, lanes: int, fma: bool, width: int) -> Any:
    emit = {"peak": _emit_peak, "read": _emit_read}[kind]

    @intrinsic
    def inner(_typing: Any, address: Any, steps: Any) -> Any:
        def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            fn = internal_function(builder.module, f"tilewise_{kind}", 2)
            entry = ir.IRBuilder(fn.append_basic_block("entry"))
            emit(fn, Vectors(entry, ELEMENTS[how.accumulator], lanes, fma), how, width)
            builder.call(fn, args)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    def measured(address: int, steps: int) -> None:
        inner(address, steps)

    return cfunc(types.void(types.int64, types.int64))(measured).ctypes


def _emit_peak(fn: ir.Function, v: Vectors, how: Arithmetic, chains: int) -> None:
    address, steps = fn.args
    x = v.load(address)
    loop = Loop(v.builder, [v.zero] * chains, "chain")
    # The product of an accumulator keeps integer chains from collapsing into one multiply.
    plain_integers = not (how.dot or v.element.is_float)
    sums = [
        multiply_add(v, how, acc, x, x) if plain_integers else multiply_add(v, how, x, x, acc)
        for acc in loop.carried
    ]
    sums = loop.close(sums, steps, 1)
    total = functools.reduce(v.add, sums)
    v.store(total, v.at(address, v.lanes))
    v.builder.ret_void()


def _emit_read(fn: ir.Function, v: Vectors, _how: Arithmetic, streams: int) -> None:
    address, steps = fn.args
    b = v.builder
    stream = b.mul(steps, const(v.lanes))
    loop = Loop(b, [v.zero] * streams, "line")
    sums = []
    for s, acc in enumerate(loop.carried):
        at = b.add(b.mul(stream, const(s)), b.mul(loop.index, const(v.lanes)))
        sums.append(v.add(acc, v.load(v.offset(address, at))))
    sums = loop.close(sums, steps, 1)
    v.store(functools.reduce(v.add, sums), address)
    b.ret_void()
