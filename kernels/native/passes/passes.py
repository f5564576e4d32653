"""Passes over memory by name, compiled on first use, and chains of calls.

A chain calls functions at addresses with the addresses of their parameters.
"""

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, cfunc, njit, types
from numba.core.cgutils import alloca_once_value, for_range
from numba.extending import intrinsic

from tilewise.kernels.native.conversion import copy_rows, transpose_blocks
from tilewise.kernels.native.language.intrinsics import call_address, word


@intrinsic
def pointer(_typing: Any, address: Any) -> Any:
    """Convert an address to a pointer."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), codegen


@njit(nogil=True)
def elements(address: int, count: int, dtype: Any) -> Any:
    """Return `count` elements of a type at an address."""
    return carray(pointer(address), count, dtype)


@njit(nogil=True)
def part(at: int, which: int, dtype: Any) -> Any:
    """Return a thread's elements of the array that parameter `which` points to.

    The third and fourth parameters at `at` are the thread's first element and end.
    """
    first, end = word(at, 2), word(at, 3)
    size = carray(pointer(at), 1, dtype).itemsize
    return elements(word(at, which) + first * size, end - first, dtype)


Chain = ctypes.CFUNCTYPE(None, ctypes.c_int64)


@functools.cache
def chain() -> Any:
    """Return the function that runs a chain.

    Parameters: the address of pairs of function and parameters, first, end.
    """

    @cfunc("void(int64)")
    def run(at: int) -> None:
        pairs = word(at, 0)
        for i in range(word(at, 1), word(at, 2)):
            call_address(word(pairs, 2 * i), word(pairs, 2 * i + 1))

    return run


UNSIGNED: dict[int, type[Any]] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
"""What moves elements of so many bytes."""


@njit(nogil=True)
def _sides(at: int, kind: Any) -> Any:
    """Return source, target, and a thread's offsets in each; parameters as of `rows_pass`."""
    first, end = word(at, 2), word(at, 3)
    return (
        elements(word(at, 0), word(at, 7), kind),
        elements(word(at, 1), word(at, 8), kind),
        elements(word(at, 4), end, np.int64)[first:],
        elements(word(at, 5), end, np.int64)[first:],
    )


def rows_pass(size: int) -> Callable[[int], None]:
    """Copy rows.

    Parameters: source, target, first, end, offsets of each, length, elements of source and target.
    """
    kind = UNSIGNED[size]

    def run(at: int) -> None:
        source, target, froms, tos = _sides(at, kind)
        copy_rows(source, target, froms, tos, word(at, 6))

    return run


def blocks_pass(size: int) -> Callable[[int], None]:
    """Transpose blocks: parameters of rows, then columns, the target's and source's steps."""
    kind = UNSIGNED[size]

    def run(at: int) -> None:
        source, target, froms, tos = _sides(at, kind)
        transpose_blocks(
            source, target, froms, tos, word(at, 6), word(at, 9), word(at, 10), word(at, 11)
        )

    return run


def copy(at: int) -> None:
    """Copy words of four bytes: source, target, first, end."""
    source, target = part(at, 0, np.uint32), part(at, 1, np.uint32)
    for i in range(len(target)):
        target[i] = source[i]


def fill(at: int) -> None:
    """Fill with one f32: nothing, target, first, end, the number as f64."""
    number = np.float32(elements(at, 5, np.float64)[4])
    target = part(at, 1, np.float32)
    for i in range(len(target)):
        target[i] = number


Take = Callable[[ir.IRBuilder, ir.Value, ir.Value], ir.Value]
"""The instructions that take a vector of elements into a vector of results."""
LANES = 16  # of the vectors; a processor with shorter ones uses several
FEW = 4
FLOAT = 4  # bytes


def larger(builder: ir.IRBuilder, most: ir.Value, value: ir.Value) -> ir.Value:
    """Return the larger of two numbers; NaN is kept."""
    is_larger = builder.fcmp_ordered(">", value, most)
    is_no_number = builder.fcmp_unordered("uno", value, value)
    return builder.select(builder.or_(is_larger, is_no_number), value, most)


def added(builder: ir.IRBuilder, total: ir.Value, value: ir.Value) -> ir.Value:
    """Return the sum of two numbers."""
    return builder.fadd(total, value)


@njit(nogil=True)
def inside(step: int, offset: int, size: int, count: int) -> tuple[int, int]:
    """Return the range of indices i < `count` for which `i * step + offset` is within a size."""
    first = max(0, -(offset // step))
    end = min(count, (size - 1 - offset) // step + 1)
    return first, max(first, end)


def block_of(take: Take, start: float, lanes: int, across: int) -> Any:
    """Return a function that writes `lanes` results, whose windows are `across` elements apart.

    Parameters: addresses of the results and of the first window; rows of elements and their byte
    step, columns and their byte step. Results are stored after all elements are combined.
    """
    vector, pointer = ir.VectorType(ir.FloatType(), lanes), ir.IntType(8).as_pointer()

    def load(builder: ir.IRBuilder, address: ir.Value, skip: int) -> ir.Value:
        whole = builder.add(address, ir.Constant(ir.IntType(64), skip * FLOAT))
        typed = builder.bitcast(builder.inttoptr(whole, pointer), vector.as_pointer())
        return builder.load(typed, align=FLOAT)

    def every(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
        """Return every `across`-th element; the last one loaded is the last one needed."""
        first = load(builder, address, 0)
        if across == 1 or lanes == 1:
            return first
        second = load(builder, address, lanes - 1)
        picked = [2 * i if 2 * i < lanes else 2 * i + 1 for i in range(lanes)]
        mask = ir.Constant(ir.VectorType(ir.IntType(32), lanes), picked)
        return builder.shuffle_vector(first, second, mask)

    @intrinsic
    def block(
        _typing: Any, target: Any, source: Any, rows: Any, down: Any, cols: Any, right: Any
    ) -> Any:
        def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            target, source, rows, down, cols, right = args
            held = alloca_once_value(builder, ir.Constant(vector, [start] * lanes))
            builder.store(ir.Constant(vector, [start] * lanes), held)
            with for_range(builder, rows) as row:
                line = builder.add(source, builder.mul(row.index, down))
                with for_range(builder, cols) as col:
                    at = builder.add(line, builder.mul(col.index, right))
                    builder.store(take(builder, builder.load(held), every(builder, at)), held)
            typed = builder.bitcast(builder.inttoptr(target, pointer), vector.as_pointer())
            builder.store(builder.load(held), typed, align=FLOAT)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), codegen

    return block


def blocks_of(take: Take, start: float, across: int) -> Any:
    """Return a function that writes `count` results by vectors, the last of which may overlap.

    Parameters: `count`, then as of `block_of`.
    """
    many, few, one = (block_of(take, start, lanes, across) for lanes in (LANES, FEW, 1))

    @njit(nogil=True)
    def blocks(
        count: int, target: int, source: int, rows: int, down: int, cols: int, right: int
    ) -> None:
        lanes = LANES if count >= LANES else FEW if count >= FEW else 1
        for begin in range(0, count, lanes):
            at = min(begin, count - lanes) * FLOAT
            if lanes == LANES:
                many(target + at, source + at * across, rows, down, cols, right)
            elif lanes == FEW:
                few(target + at, source + at * across, rows, down, cols, right)
            else:
                one(target + at, source + at * across, rows, down, cols, right)

    return blocks


def window_pass(take: Take, start: float) -> Callable[[int], None]:
    """Return the pass that combines a window's elements, from a start value.

    Parameters: source, target, first and end of the target's rows; height, width, output height,
    output width, inner; of the window height, width, strides, dilations, and leading zeros.
    """
    together, apart = blocks_of(take, start, 1), blocks_of(take, start, 2)

    @njit(nogil=True)
    def row_of(source: int, target: int, sizes: Any, row: int) -> None:
        height, width, out_height, out_width, inner = sizes[:5]
        rows, cols, down, across, row_step, col_step, above, left = sizes[5:]
        element = inner * FLOAT
        top = row % out_height * down - above
        tap, end = inside(row_step, top, height, rows)
        rows = end - tap
        line = source + (row // out_height * height + top + tap * row_step) * width * element
        out = target + row * out_width * element
        row_bytes, col_bytes = row_step * width * element, col_step * element
        # Windows from `first` to `last` have all their columns in the image.
        first, _ = inside(across, -left, width, out_width)
        _, last = inside(across, (cols - 1) * col_step - left, width, out_width)
        in_lanes = inner == 1 and across <= 2 and last - first >= FEW
        if in_lanes:
            at = line + (first * across - left) * FLOAT
            blocks = last - first, out + first * FLOAT, at, rows, row_bytes, cols, col_bytes
            if across == 1:
                together(*blocks)
            else:
                apart(*blocks)
        for x in range(out_width):
            if in_lanes and first <= x < last:
                continue
            offset = x * across - left
            col, stop = inside(col_step, offset, width, cols)
            at = line + (offset + col * col_step) * element
            together(inner, out + x * element, at, rows, row_bytes, stop - col, col_bytes)

    def run(at: int) -> None:
        words = elements(at, 17, np.int64)
        sizes = (words[4], words[5], words[6], words[7], words[8], words[9], words[10], words[11],
                 words[12], words[13], words[14], words[15], words[16])  # fmt: skip
        for row in range(words[2], words[3]):
            row_of(words[0], words[1], sizes, row)

    return run


@njit(nogil=True, fastmath={"reassoc", "contract"})
def total(values: Any) -> Any:
    """Return the sum in any order."""
    found = np.float32(0)
    for i in range(len(values)):
        found += values[i]
    return found


@njit(nogil=True)
def add_to(sums: Any, values: Any) -> None:
    """Add values to sums elementwise."""
    for i in range(len(sums)):
        sums[i] += values[i]


def sums_of(at: int) -> None:
    """Sum [outer, many, inner] over `many`.

    Parameters: source, target, first and end of outer, many, inner.
    """
    first, end, many, inner = word(at, 2), word(at, 3), word(at, 4), word(at, 5)
    source = elements(word(at, 0), end * many * inner, np.float32)
    target = elements(word(at, 1), end * inner, np.float32)
    for one in range(first, end):
        values = source[one * many * inner : (one + 1) * many * inner]
        if inner == 1:
            target[one] = total(values)
            continue
        sums = target[one * inner : (one + 1) * inner]
        sums[:] = 0
        for row in range(many):
            add_to(sums, values[row * inner : (row + 1) * inner])


_MAKERS: dict[str, Callable[[], Callable[[int], None]]] = {
    "max": lambda: window_pass(larger, -inf),
    "window sum": lambda: window_pass(added, 0.0),
    "sum": lambda: sums_of,
    "copy": lambda: copy,
    "fill": lambda: fill,
    **{f"rows {size}": functools.partial(rows_pass, size) for size in (1, 2, 4, 8)},
    **{f"blocks {size}": functools.partial(blocks_pass, size) for size in (1, 2, 4, 8)},
}


@dataclass(frozen=True)
class CompiledPass:
    """A compiled pass."""

    entry: int
    owner: Any


@functools.cache
def pass_of(name: str) -> CompiledPass:
    """Return a pass of `_MAKERS`; `rows` and `blocks` name the bytes of an element."""
    made = cfunc("void(int64)")(_MAKERS[name]())
    return CompiledPass(made.address, made)
