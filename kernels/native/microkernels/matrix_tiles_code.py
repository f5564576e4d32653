"""The code of a micro-kernel of matrix tiles: a grid of tiles of C over a chunk of k.

    C[rows, cols] = relu?( (C | 0) + bias? + sum over taps, k of A[rows, tap, k] * B[tap, k, cols] )

A product of tiles takes 16 cycles whatever its tiles hold, a tile load 8 from L1 and 20 from L2. So
each tile of A and B is loaded once a step, and the side that streams through the caches is loaded
by `tileloaddt1`, which leaves the other one in L1.

A tile store waits 250 ns longer if no vector was multiplied or added for some 700 ns: the units for
vectors wake up. So each step multiplies a vector that nobody reads, and calls of 32 steps take 0.8
of the time (an Intel server at 3.8 GHz). Vector logic, shuffles, loads and stores do not help.

Panels of B consist of whole tiles of 1 KiB, which load 5% faster than rows of a panel.

Tiles of the last rows and columns of C are cut by a configuration of their own: nothing past an
operand is read. The last words of the reduction are copied to zero-filled tiles on the stack.
C is accumulated in its place; bias and relu are applied there while it is in L1.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from llvmlite import ir

from tilewise.kernels.arithmetic import Arithmetic
from tilewise.kernels.native.ir.builder import Builder, typed
from tilewise.kernels.native.ir.control import CountedLoop
from tilewise.kernels.native.ir.dot_products import corrections
from tilewise.kernels.native.ir.vectors import (
    ELEMENTS,
    I8,
    I32,
    LINE_BYTES,
    VOID,
    Value,
    Vectors,
    begin_function,
    const,
    declare,
)
from tilewise.kernels.native.microkernels.abi import (
    ADD_BIAS,
    LOAD_C,
    RELU,
    Arguments,
    arguments_for,
)
from tilewise.kernels.native.microkernels.building_blocks import (
    EpilogueEmitter,
    TapLoops,
    begin_kernel,
    end_of_whole,
    run_if,
    run_if_any,
)
from tilewise.kernels.native.microkernels.microkernel import Cut
from tilewise.kernels.nest import Fetch, Fetched

TILE = 16
"""Rows of a tile, and its columns of four bytes."""

TILE_REGISTERS = 8
WORD_BYTES = 4
_POINTER = I8.as_pointer()
_LINE = ir.VectorType(I32, TILE)
_ROWS_AT, _COLUMNS_AT = 48, 16
"""Bytes of a configuration from which on registers have their rows, and their bytes of a row."""


@dataclass(frozen=True)
class MatrixTileSpec:
    """All that the code of a micro-kernel of matrix tiles depends on.

    Attributes:
        how: the arithmetic.
        rows, vectors: tiles of C down and across.
        unroll: steps of the reduction, each of the words of a tile, in one iteration.
        a_row: words between rows of A.
        in_tiles: whether the panels of B consist of whole tiles, not of rows.
        taps: the loops over filter taps: none, two, or three for volumes.
        streams_b: whether consecutive calls read the same rows of A and other panels of B.
        rows_of_c: rows of C that a step prefetches.
        lines_of_row: cache lines that a row of B in place may have of a panel.
        fetch: what is prefetched; None for nothing.
        bias_rows: whether the bias has an element for each row, not for each column.
        epilogue: which of `ADD_BIAS` and `RELU` a call may ask for, and `CEILING`.
    """

    how: Arithmetic
    rows: int
    vectors: int
    unroll: int
    a_row: int
    in_tiles: bool
    taps: int
    streams_b: bool
    rows_of_c: int = 0
    lines_of_row: int = 1
    fetch: Fetch | None = None
    bias_rows: bool = False
    epilogue: int = ADD_BIAS | RELU

    @property
    def lanes(self) -> int:
        """Return the elements of an accumulator vector."""
        return TILE

    @property
    def cols(self) -> int:
        """Return the columns of the register tile in elements."""
        return self.vectors * TILE

    @property
    def step_words(self) -> int:
        """Return the words of the reduction that a step multiplies."""
        return self.how.instruction.words

    @property
    def step_bytes(self) -> int:
        """Return the bytes of a row of A that a step reads: a line of each part."""
        return self.step_words * self.how.word_bytes

    def lines_of_b(self, tile_rows: Value) -> tuple[Value, Value]:
        """Return the lines between rows of a tile in a panel, and between tiles of so many rows."""
        return (const(1), tile_rows) if self.in_tiles else (const(self.vectors), const(1))

    def steps(self, multiply_adds: int) -> int:
        """Return the steps of the reduction that so many products of tiles take."""
        return multiply_adds // (self.rows * self.vectors * len(self.how.instruction.parts))


@dataclass(frozen=True)
class TileRegisters:
    """Which tile register has what: accumulators first, then tiles of A, then tiles of B.

    Where not all fit, the longer side takes turns in those that are left; its last tile, which C
    may cut, has one of its own.
    """

    rows: int
    cols: int

    @property
    def _of_a(self) -> int:
        """Return how many registers A has."""
        left = TILE_REGISTERS - self.rows * self.cols
        return min(self.rows, left - min(self.cols, left - 1))

    def c(self, row: int, col: int) -> int:
        """Return the accumulator of a tile of C."""
        return row * self.cols + col

    def a(self, row: int) -> int:
        """Return the register of a tile of A."""
        return self.rows * self.cols + _turn(row, self.rows, self._of_a)

    def b(self, col: int) -> int:
        """Return the register of a tile of B."""
        first = self.rows * self.cols + self._of_a
        return first + _turn(col, self.cols, min(self.cols, TILE_REGISTERS - first))


def _turn(index: int, count: int, registers: int) -> int:
    if count <= registers or index == count - 1:
        return min(index, registers - 1)
    return index % (registers - 1)


def emit_configure(module: ir.Module, rows: int, cols: int) -> ir.Function:
    """Add the function that configures the tile registers of a thread for whole tiles."""
    fn, builder, _ = begin_function(module, "tilewise_kernel_configure")
    tiles = Tiles(builder, builder.ptrtoint(builder.alloca(_LINE)), rows, cols)
    tiles.configure(const(rows * TILE), const(cols * TILE))
    builder.ret_void()
    return fn


def emit_release(module: ir.Module) -> ir.Function:
    """Add the function that gives the tile registers of a thread back."""
    fn, builder, _ = begin_function(module, "tilewise_kernel_release")
    Tiles(builder, const(0), 0, 0).release()
    builder.ret_void()
    return fn


def emit_tiles(module: ir.Module, spec: MatrixTileSpec) -> ir.Function:
    """Add the micro-kernel for whole register tiles; the tile registers are configured."""
    fn, builder, arg = begin_kernel(module, "full", arguments_for(spec.taps))
    _Call.begin(builder, spec, arg, is_whole=True).emit()
    builder.ret_void()
    return fn


def emit_edge_tiles(module: ir.Module, spec: MatrixTileSpec, cut: Cut) -> ir.Function:
    """Add the micro-kernel for register tiles of fewer rows or columns, or both, as `cut` says.

    It configures the tile registers for them, and for whole tiles at its end.
    """
    fn, builder, arg = begin_kernel(module, "edge", arguments_for(spec.taps))
    call = _Call.begin(builder, spec, arg, is_whole=False)

    def emit(rows: int, cols: int) -> None:
        tiles = replace(call.tiles, rows=rows, cols=cols)
        tiles.configure(arg.rows, arg.cols)
        replace(call, tiles=tiles).emit()

    def by_cols(rows: int, cols: int) -> None:
        if cols == 1 or "cols" not in cut:
            emit(rows, cols)
            return
        fewer = builder.icmp_signed("<=", arg.cols, const((cols - 1) * TILE))
        run_if(builder, fewer, partial(by_cols, rows, cols - 1), partial(emit, rows, cols))

    def by_rows(rows: int) -> None:
        if rows == 1 or "rows" not in cut:
            by_cols(rows, spec.vectors)
            return
        fewer = builder.icmp_signed("<=", arg.rows, const((rows - 1) * TILE))
        run_if(builder, fewer, partial(by_rows, rows - 1), partial(by_cols, rows, spec.vectors))

    by_rows(spec.rows)
    call.tiles.configure(const(spec.rows * TILE), const(spec.vectors * TILE))
    builder.ret_void()
    return fn


@dataclass(frozen=True)
class Tiles:
    """Emits instructions on the registers of a grid of tiles.

    Attributes:
        builder: where.
        scratch: address of memory for a configuration.
        rows, cols: tiles of C down and across.
    """

    builder: Builder
    scratch: Value
    rows: int
    cols: int

    @property
    def registers(self) -> TileRegisters:
        """Return which register has what."""
        return TileRegisters(self.rows, self.cols)

    def configure(self, rows: Value, cols: Value) -> None:
        """Configure the registers for so many rows and columns of C."""
        b, registers = self.builder, self.registers
        heights = [self._length(rows, i, self.rows) for i in range(self.rows)]
        widths = [b.mul(self._length(cols, j, self.cols), const(4)) for j in range(self.cols)]
        shapes = {registers.c(i, j): (heights[i], widths[j]) for i, j in self.grid}
        shapes |= {registers.a(i): (heights[i], const(LINE_BYTES)) for i in range(self.rows)}
        shapes |= {registers.b(j): (const(TILE), widths[j]) for j in range(self.cols)}
        self.shape(shapes)

    def shape(self, shapes: Mapping[int, tuple[Value, Value]]) -> None:
        """Configure registers by their numbers, each for some rows of some bytes."""
        b, at = self.builder, self.scratch
        Vectors(b, ELEMENTS["i32"], TILE).store(ir.Constant(_LINE, None), at)
        self._put(at, 0, const(1), I8)  # the palette
        for register, (height, width) in shapes.items():
            self._put(at, _ROWS_AT + register, height, I8)
            self._put(at, _COLUMNS_AT + 2 * register, width, ir.IntType(16))
        self._call("ldtilecfg", b.inttoptr(at, _POINTER))

    def release(self) -> None:
        """Give the registers back."""
        self._call("tilerelease")

    @property
    def grid(self) -> list[tuple[int, int]]:
        """Return row and column of each tile of C."""
        return [(i, j) for i in range(self.rows) for j in range(self.cols)]

    def _length(self, extent: Value, index: int, count: int) -> Value:
        """Return the rows or columns of a tile: all but the last tile are whole."""
        return const(TILE) if index < count - 1 else self.builder.sub(extent, const(index * TILE))

    def _put(self, at: Value, offset: int, value: Value, kind: ir.IntType) -> None:
        b = self.builder
        pointer = b.inttoptr(b.add(at, const(offset)), kind.as_pointer())
        b.store(b.trunc(value, kind), pointer, align=1)

    def load(self, register: int, at: Value, row_bytes: Value, once: bool = False) -> None:
        """Load a tile from rows `row_bytes` apart; `once` leaves what L1 holds there."""
        name = "tileloaddt164" if once else "tileloadd64"
        self._call(name, _number(register), self.builder.inttoptr(at, _POINTER), row_bytes)

    def store(self, register: int, at: Value, row_bytes: Value) -> None:
        """Store a tile to rows `row_bytes` apart."""
        pointer = self.builder.inttoptr(at, _POINTER)
        self._call("tilestored64", _number(register), pointer, row_bytes)

    def zero(self, register: int) -> None:
        """Clear a tile."""
        self._call("tilezero", _number(register))

    def multiply(self, intrinsic: str, c: int, a: int, b: int) -> None:
        """Add the product of two tiles to a third."""
        self._call(intrinsic.removeprefix("llvm.x86."), *map(_number, (c, a, b)))

    def _call(self, name: str, *given: Value) -> None:
        kinds = [value.type for value in given]
        fn = declare(self.builder.module, f"llvm.x86.{name}", VOID, kinds)
        self.builder.call(fn, given)


def _number(register: int) -> Value:
    return ir.Constant(I8, register)


@dataclass(frozen=True)
class _Call:
    """Emits a call: what the tiles of C start from, the loops over taps and k, and the epilogue.

    Attributes:
        builder, spec, arg: where it is emitted, what for, and the arguments.
        tiles: the grid of tiles that it computes.
        tails: address of memory for the last words of A and B.
        is_whole: whether C cuts nothing off.
    """

    builder: Builder
    spec: MatrixTileSpec
    arg: Arguments[Value]
    tiles: Tiles
    tails: Value
    is_whole: bool

    @classmethod
    def begin(
        cls, b: Builder, spec: MatrixTileSpec, arg: Arguments[Value], is_whole: bool
    ) -> "_Call":
        """Return the call for whole register tiles, with memory on the stack."""
        lines = TILE * (spec.rows + spec.vectors)
        scratch, tails = (b.ptrtoint(b.alloca(ir.ArrayType(_LINE, count))) for count in (1, lines))
        tiles = Tiles(b, scratch, spec.rows, spec.vectors)
        return cls(b, spec, arg, tiles, tails, is_whole)

    def emit(self) -> None:
        """Emit the call."""
        b, spec, arg, tiles = self.builder, self.spec, self.arg, self.tiles
        row = b.mul(arg.c_row, const(WORD_BYTES))
        places = [(tiles.registers.c(i, j), self._tile_of_c(i, j, row)) for i, j in tiles.grid]

        def load() -> None:
            for register, at in places:
                tiles.load(register, at, row)

        def clear() -> None:
            for register, _ in places:
                tiles.zero(register)

        adds = b.icmp_signed("!=", b.and_(arg.flags, const(LOAD_C)), const(0))
        run_if(b, adds, load, clear)
        self._reduce()
        for register, at in places:
            tiles.store(register, at, row)
        if spec.how.corrects:
            self._correct(row)
        if spec.epilogue & (ADD_BIAS | RELU):
            run_if_any(b, b.and_(arg.flags, const(ADD_BIAS | RELU)), partial(self._finish, row))

    def _tile_of_c(self, i: int, j: int, row: Value) -> Value:
        b = self.builder
        return b.add(b.add(self.arg.c, b.mul(row, const(i * TILE))), const(j * LINE_BYTES))

    # Products

    def _reduce(self) -> None:
        """Add all products of the call, tap by tap."""
        b, arg = self.builder, self.arg
        if not self.spec.taps:
            self._reduce_depth(arg.a, arg.b, arg.ahead)
            return
        taps = TapLoops(b, arg, ())
        self._reduce_depth(
            self._words(arg.a, taps.moved),
            self._words(arg.b, b.mul(taps.tap, arg.b_tap)),
            b.add(arg.ahead, b.mul(b.mul(taps.tap, arg.depth), arg.ahead_step)),
        )
        taps.close(())

    def _words(self, address: Value, count: Value) -> Value:
        size = const(self.spec.how.word_bytes)
        return self.builder.add(address, self.builder.mul(count, size))

    def _reduce_depth(self, a: Value, b_at: Value, ahead: Value) -> None:
        """Emit the unrolled loop over whole steps, the steps that are left, and the last words."""
        b, unroll, depth = self.builder, self.spec.unroll, self.arg.depth
        words = self.spec.step_words
        steps = b.ashr(depth, const(words.bit_length() - 1))
        rest = b.and_(depth, const(words - 1))

        def loop(start: Value, count: Value, unroll: int) -> None:
            turn = CountedLoop(b, (), f"steps.by{unroll}")
            for u in range(unroll):
                self._step(b.add(b.add(start, turn.index), const(u)), a, b_at, ahead)
            turn.close((), count, unroll)

        whole = steps if unroll == 1 else end_of_whole(b, steps, unroll)
        run_if_any(b, whole, lambda: loop(const(0), whole, unroll))
        if unroll > 1:
            left = b.sub(steps, whole)
            run_if_any(b, left, lambda: loop(whole, left, 1))
        if words == 1:  # packed with zeros up to whole steps
            return
        a_tail = b.add(a, b.mul(steps, const(LINE_BYTES)))
        b_tail = self._words(b_at, b.mul(steps, const(TILE * self.spec.cols)))
        run_if_any(b, rest, lambda: self._tail(a_tail, b_tail, rest))

    def _step(self, step: Value, a: Value, b_at: Value, ahead: Value) -> None:
        """Multiply a step's words of each row of A with those of a panel, part by part."""
        b = self.builder
        self._keep_awake()
        if self.is_whole:
            self._fetch_rows_of_c(step)
        if self.spec.fetch is not None:
            run_if_any(b, self.arg.ahead_step, lambda: self._fetch(ahead, step))
        spec, taken = self.spec, (-1, -1)
        a = b.add(a, b.mul(step, const(spec.step_bytes)))
        b_at = b.add(b_at, b.mul(step, const(spec.step_bytes * spec.cols)))
        of_b = {self.tiles.registers.b(j) for j in range(self.tiles.cols)}
        holds_b = len(of_b) == self.tiles.cols
        for parts in spec.how.instruction.parts:
            self._multiply(
                b.add(a, const(parts[0] * LINE_BYTES)),
                spec.a_row * spec.how.word_bytes,
                b.add(b_at, const(parts[1] * LINE_BYTES * spec.cols)),
                *spec.lines_of_b(const(TILE)),
                keeps_b=parts[1] == taken[1] and holds_b,
            )
            taken = parts

    def _multiply(
        self, a: Value, a_row: int, b_at: Value, b_row: Value, b_tile: Value, keeps_b: bool = False
    ) -> None:
        """Load the tiles of both sides, the shorter one first, and add their products to C.

        Rows of A are `a_row` bytes apart, those of B `b_row` lines, and tiles of B `b_tile` lines.
        With `keeps_b` the registers hold those of B already.
        """
        b, tiles, registers = self.builder, self.tiles, self.tiles.registers
        intrinsic, streams_b = self.spec.how.instruction.intrinsic, self.spec.streams_b

        def load_a(i: int) -> None:
            at = b.add(a, const(i * TILE * a_row))
            tiles.load(registers.a(i), at, const(a_row), once=not streams_b)

        def load_b(j: int) -> None:
            if keeps_b:
                return
            at = b.add(b_at, b.mul(b_tile, const(j * LINE_BYTES)))
            tiles.load(registers.b(j), at, b.mul(b_row, const(LINE_BYTES)), once=streams_b)

        def multiply(i: int, j: int) -> None:
            tiles.multiply(intrinsic, registers.c(i, j), registers.a(i), registers.b(j))

        if tiles.rows <= tiles.cols:
            for i in range(tiles.rows):
                load_a(i)
            for j in range(tiles.cols):
                load_b(j)
                for i in range(tiles.rows):
                    multiply(i, j)
            return
        for j in range(tiles.cols):
            load_b(j)
        for i in range(tiles.rows):
            load_a(i)
            for j in range(tiles.cols):
                multiply(i, j)

    def _keep_awake(self) -> None:
        """Multiply what a vector register happens to have; LLVM may not leave it out."""
        b = self.builder
        some = b.write(_LINE, f'call {_LINE} asm sideeffect "", "=v"()')
        b.put(f'call void asm sideeffect "", "v"({typed(b.mul(some, some))})')

    def _fetch_rows_of_c(self, step: Value) -> None:
        """Prefetch a step's share of the rows of C, which the end of the call writes.

        All at once they would take the places for lines under way to the first cache.
        """
        b, v, rows = self.builder, self._vectors, self.spec.rows_of_c
        row = b.mul(self.arg.c_row, const(WORD_BYTES))
        for i in range(rows):
            at = b.add(b.mul(step, const(rows)), const(i))
            at = b.and_(at, const(self.tiles.rows * TILE - 1))
            at = b.add(self.arg.c, b.mul(at, row))
            for j in range(self.tiles.cols):
                v.prefetch_for_write(b.add(at, const(j * LINE_BYTES)))

    def _fetch(self, ahead: Value, step: Value) -> None:
        """Prefetch a step's share of the panel that follows, or its rows of B's next block."""
        fetch, b, v = self.spec.fetch, self.builder, self._vectors
        assert fetch is not None
        is_block = fetch.what is Fetched.NEXT_BLOCK
        rows = self.spec.step_words * (self.spec.how.depth if is_block else 1)
        first = b.add(ahead, b.mul(b.mul(step, const(rows)), self.arg.ahead_step))
        if not is_block:
            lines = CountedLoop(b, (), "ahead")
            v.prefetch(b.add(first, lines.index), fetch.level)
            lines.close((), b.mul(self.arg.ahead_step, const(rows)), LINE_BYTES)
            return
        row = CountedLoop(b, (), "ahead")
        at = b.add(first, b.mul(row.index, self.arg.ahead_step))
        for line in range(self.spec.lines_of_row):
            v.prefetch(b.add(at, const(line * LINE_BYTES)), fetch.level)
        row.close((), const(rows), 1)

    def _tail(self, a: Value, b_at: Value, words: Value) -> None:
        """Multiply the last words of the reduction, copied to zero-filled tiles."""
        b, tiles = self.builder, self.tiles
        v = Vectors(b, ELEMENTS["i32"], TILE)
        a_row = self.spec.a_row * WORD_BYTES
        of_b = b.add(self.tails, const(self.spec.rows * TILE * LINE_BYTES))
        inside = v.first_lanes(words, 0)
        rows = CountedLoop(b, (), "tail.a")
        last = v.load(b.add(a, b.mul(rows.index, const(a_row))), inside)
        v.store(last, b.add(self.tails, b.mul(rows.index, const(LINE_BYTES))))
        rows.close((), self._rows, 1)
        row = CountedLoop(b, (), "tail.b")
        exists = v.splat(b.icmp_signed("<", row.index, words))
        b_row, b_tile = self.spec.lines_of_b(words)
        for j in range(tiles.cols):
            line = b.add(b.mul(row.index, b_row), b.mul(b_tile, const(j)))
            at = b.add(b_at, b.mul(line, const(LINE_BYTES)))
            to = b.add(of_b, b.mul(b.add(row.index, const(j * TILE)), const(LINE_BYTES)))
            v.store(v.load(at, exists), to)
        row.close((), const(TILE), 1)
        self._multiply(self.tails, LINE_BYTES, of_b, const(1), const(TILE))

    # The epilogue

    @property
    def _rows(self) -> Value:
        """Return the rows of C that exist."""
        return const(self.tiles.rows * TILE) if self.is_whole else self.arg.rows

    @property
    def _vectors(self) -> Vectors:
        return Vectors(self.builder, ELEMENTS[self.spec.how.accumulator], TILE)

    def _correct(self, row_bytes: Value) -> None:
        """Add to C, in place, what makes up for A's zero point."""
        b, v, arg = self.builder, self._vectors, self.arg
        sums = corrections(v, self.spec.how, arg.extra, arg.zero, self.tiles.cols)
        row = CountedLoop(b, (), "row")
        c = b.add(arg.c, b.mul(row.index, row_bytes))
        for j, one in enumerate(sums):
            mask = None if self.is_whole else v.first_lanes(arg.cols, j * TILE)
            at = v.at(c, j * TILE)
            v.store(v.add(v.load(at, mask), one), at, mask)
        row.close((), self._rows, 1)

    def _finish(self, row_bytes: Value) -> None:
        """Add the bias to C and apply relu, in place."""
        b, v, arg = self.builder, self._vectors, self.arg
        ends = EpilogueEmitter(v, arg.flags, self.spec.epilogue)
        row = CountedLoop(b, (), "row")
        c = b.add(arg.c, b.mul(row.index, row_bytes))
        for j in range(self.tiles.cols):
            mask = None if self.is_whole else v.first_lanes(arg.cols, j * TILE)
            at = v.at(c, j * TILE)
            bias = v.at(arg.bias, j * TILE)

            def biases(bias: Value = bias, mask: Value | None = mask) -> list[Value]:
                if self.spec.bias_rows:
                    return [v.load_splat(v.offset(arg.bias, row.index))]
                return [v.load(bias, mask)]

            (value,) = ends.relu(ends.add(ADD_BIAS, [v.load(at, mask)], biases))
            v.store(value, at, mask)
        row.close((), self._rows, 1)
