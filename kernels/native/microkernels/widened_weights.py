"""The micro-kernel of quantised weights by matrix tiles (AMX): a tile of 16 x 16 of C.

    C[rows, cols] = relu?( (C | 0) + bias? + sum over blocks of
        scale_b * (sum over k of parts of A[rows, k] * (codes[k, cols] - zero)) )

Sums of C are in vector registers, those of a block in a tile register. A block's sums leave through
memory, which is what blocks of 32 are bound by: 16 stores and 48 loads of lines for one product of
tiles of 16 cycles. A store of a tile holds up what follows until the tile is there: four tiles take
turns, and each is stored where the next product on it begins, and added one product later. That is
1.4 times as fast as at once (Emerald Rapids, in the first cache: 31 instead of 45 cycles).
"""

from dataclasses import dataclass
from typing import ClassVar, Self

from llvmlite import ir

from tilewise.kernels.arithmetic import Arithmetic, WidenedWeights, size_of
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.instructions import NAMES, Form, known_instruction
from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import CountedLoop
from tilewise.kernels.native.ir.dot_products import widen
from tilewise.kernels.native.ir.vectors import (
    ELEMENTS,
    I32,
    LINE_BYTES,
    Value,
    Vectors,
    begin_function,
    const,
)
from tilewise.kernels.native.microkernels.abi import (
    CONFIGURE,
    RELEASE,
    WIDEN,
    Arguments,
    epilogue_flags,
)
from tilewise.kernels.native.microkernels.building_blocks import (
    EpilogueEmitter,
    begin_kernel,
    emit_results,
    if_any,
)
from tilewise.kernels.native.microkernels.matrix_tiles_code import TILE, Tiles, emit_release
from tilewise.kernels.native.microkernels.microkernel import ANY_USE, Piece, Use
from tilewise.kernels.native.packing.quantised import emit_pack_weights
from tilewise.kernels.native.packing.widening import emit_parts_of_rows, emit_widen
from tilewise.kernels.native.strides import Strides
from tilewise.kernels.nest import Nest
from tilewise.kernels.target.model import Target

SUMS = 4
"""Tile registers of sums, which take turns; the others have two tiles of A and two of B."""

_TILE_BYTES = TILE * LINE_BYTES


@dataclass(frozen=True)
class WidenedSpec:
    """All that the code depends on.

    Attributes:
        how: the arithmetic.
        a_row: bytes between packed rows of A.
        epilogue: which of `ADD_BIAS` and `RELU` a call may ask for, and `CEILING`.
    """

    how: WidenedWeights
    a_row: int
    epilogue: int

    @property
    def lanes(self) -> int:
        """Return the elements of an accumulator vector."""
        return TILE

    @property
    def cols(self) -> int:
        """Return the columns of the register tile."""
        return TILE

    @property
    def steps_of_block(self) -> int:
        """Return the products of tiles in a block, for each part of A."""
        return self.how.depth // self.how.step

    def steps(self, multiply_adds: int) -> int:
        """Return the blocks of the reduction that so many products of tiles take."""
        return multiply_adds // (self.steps_of_block * self.how.products)


@dataclass(frozen=True)
class WidenedProduct:
    """The micro-kernel of quantised weights by matrix tiles, and the packs that feed it.

    Attributes:
        spec: what its code depends on.
    """

    spec: WidenedSpec

    form: ClassVar[Form] = Form.TILES

    @classmethod
    def serves(cls, nest: Nest) -> bool:
        """Return whether weights are quantised, and the instruction multiplies matrix tiles."""
        name = nest.compute.instruction
        is_tiles = name in NAMES and Form.TILES in known_instruction(name).forms
        return is_tiles and nest.problem.quantised_weights is not None

    @classmethod
    def of(cls, nest: Nest, target: Target, strides: Strides, how: Arithmetic) -> Self:
        """Return the one for a nest; LoweringError where a register tile is no matrix tile."""
        tile = nest.tile
        if (tile.rows, tile.cols) != (TILE, TILE):
            raise LoweringError(
                f"step register: matrix tiles multiply quantised weights {TILE}x{TILE} at a time, "
                f"not {tile.rows}x{tile.cols}"
            )
        assert isinstance(how, WidenedWeights)
        a_row = strides.packed_a.row * size_of(how.packed)
        return cls(WidenedSpec(how, a_row, epilogue_flags(nest.store)))

    def pieces(self, use: Use = ANY_USE) -> dict[str, Piece]:
        """Return its functions, which serve any use."""
        spec = self.spec
        return {
            "full": Piece("full widened weights", (spec, False), emit_widened),
            "edge": Piece("edge widened weights", (spec, True), emit_widened),
            "pack_b_panel": Piece("panels of weights", (spec.how, TILE, TILE), emit_pack_weights),
            "copy_rows": Piece("parts of a", (spec.how,), emit_parts_of_rows),
            WIDEN: Piece("widened panel", (spec.how,), emit_widen),
            CONFIGURE: Piece("tiles of weights", (spec,), emit_configure),
            RELEASE: Piece(RELEASE, (), emit_release),
        }


def emit_configure(module: ir.Module, spec: WidenedSpec) -> ir.Function:
    """Add the function that configures the tile registers of a thread for whole tiles."""
    fn, builder, _ = begin_function(module, "tilewise_kernel_configure")
    tiles, size = _tiles(builder), size_of(spec.how.packed)
    registers, line = tiles.registers, const(LINE_BYTES)
    shapes = {registers.c(i, j): (const(TILE), line) for i, j in tiles.grid}
    shapes |= {registers.a(i): (const(TILE), const(spec.how.step * size)) for i in range(2)}
    shapes |= {registers.b(i): (const(spec.how.step // 2), line) for i in range(2)}
    tiles.shape(shapes)
    builder.ret_void()
    return fn


def _tiles(b: Builder) -> Tiles:
    """Return tiles whose `c` take turns, and so do `a` and `b`."""
    return Tiles(b, b.ptrtoint(b.alloca(ir.VectorType(I32, TILE))), 2, 2)


def emit_widened(module: ir.Module, spec: WidenedSpec, is_edge: bool) -> ir.Function:
    """Add the micro-kernel for whole tiles, or with `is_edge` for any rows and cols in them.

    Both compute whole tiles: rows of A past the last one are whatever its memory holds. Configuring
    tiles of fewer rows for a call, and whole ones after it, took longer than their products.
    """
    fn, builder, arg = begin_kernel(module, "edge" if is_edge else "full", Arguments)
    _Emitter(builder, spec, arg, is_edge).emit()
    builder.ret_void()
    return fn


class _Emitter:
    """One emission."""

    def __init__(self, b: Builder, spec: WidenedSpec, arg: Arguments[Value], is_edge: bool) -> None:
        self.b, self.spec, self.arg, self.how, self.is_edge = b, spec, arg, spec.how, is_edge
        self.v = Vectors(b, ELEMENTS["f32"], TILE, fma=True)
        self.scales = Vectors(b, ELEMENTS[spec.how.weights.scale], TILE)
        self.tiles = _tiles(b)
        self.c = [self.tiles.registers.c(i, j) for i, j in self.tiles.grid]
        self.memory = b.ptrtoint(b.alloca(ir.ArrayType(ir.VectorType(I32, TILE), SUMS * TILE)))

    def emit(self) -> None:
        """Emit the sums of all blocks, and C that is made of them."""
        b, v, arg = self.b, self.v, self.arg
        turns = b.ashr(arg.depth, const(SUMS.bit_length() - 1))
        rest = b.and_(arg.depth, const(SUMS - 1))
        whole = b.mul(turns, const(SUMS))
        sums = if_any(b, turns, lambda sums: self._turns(sums, whole), [v.zero] * TILE)
        sums = if_any(b, rest, lambda sums: self._rest(sums, whole, rest), sums)
        row = b.mul(arg.c_row, const(v.element.bytes))
        places = [b.add(arg.c, b.mul(row, const(i))) for i in range(TILE)]
        masks: list[Value | None] = [None] * TILE
        if self.is_edge:
            cols = v.first_lanes(arg.cols, 0)
            exist = (b.icmp_signed("<", const(i), arg.rows) for i in range(TILE))
            masks = [b.and_(cols, v.splat(one)) for one in exist]
        ends = EpilogueEmitter(v, arg.flags, self.spec.epilogue)
        emit_results(ends, sums, places, [arg.bias] * TILE, masks)

    def _turns(self, sums: list[Value], blocks: Value) -> list[Value]:
        """The sums plus those of blocks, as many of them at a time as there are tiles of sums."""
        b, v, last = self.b, self.v, SUMS - 1
        for register in self.c:
            self.tiles.zero(register)
        for row in range(TILE):
            v.store(v.zero, v.at(self.memory, (last * TILE + row) * TILE))
        loop = CountedLoop(b, [const(0), const(0), *sums], "blocks")
        stored, added, *sums = loop.carried
        for turn in range(SUMS):
            self._store(turn)
            self._multiply(turn, b.add(loop.index, const(turn)))
            sums = self._add((turn - 1) % SUMS, added, sums)
            added = b.add(stored, const(turn))
        stored, added, *sums = loop.close([loop.index, added, *sums], blocks, SUMS)
        sums = self._add(last, added, sums)
        for turn in range(SUMS):
            self._store(turn)
            sums = self._add(turn, b.add(stored, const(turn)), sums)
        return sums

    def _rest(self, sums: list[Value], first: Value, count: Value) -> list[Value]:
        """The sums plus those of the last blocks, one by one."""
        loop = CountedLoop(self.b, sums, "rest")
        block = self.b.add(first, loop.index)
        self._multiply(0, block)
        self._store(0)
        return loop.close(self._add(0, block, loop.carried), count, 1)

    def _multiply(self, turn: int, block: Value) -> None:
        """Have a tile of sums hold the products of a block."""
        b, how, tiles = self.b, self.how, self.tiles
        registers, line = tiles.registers, how.step * size_of(how.packed)
        tiles.zero(self.c[turn])
        steps = b.mul(block, const(self.spec.steps_of_block))
        a = b.add(self.arg.a, b.mul(steps, const(how.products * line)))
        codes = b.add(self.arg.b, b.mul(steps, const(TILE * line)))
        of_a, of_b = registers.a(turn % 2), registers.b(turn % 2)
        for step in range(self.spec.steps_of_block):
            at = b.add(codes, const(step * TILE * line))
            tiles.load(of_b, at, const(LINE_BYTES))
            for one in range(how.products):
                at = b.add(a, const((step * how.products + one) * line))
                tiles.load(of_a, at, const(self.spec.a_row))
                tiles.multiply(how.instruction.intrinsic, self.c[turn], of_a, of_b)

    def _store(self, turn: int) -> None:
        """Store a tile of sums to its memory."""
        at = self.b.add(self.memory, const(turn * _TILE_BYTES))
        self.tiles.store(self.c[turn], at, const(LINE_BYTES))

    def _add(self, turn: int, block: Value, sums: list[Value]) -> list[Value]:
        """The sums plus the stored ones of a block, times its scales."""
        b, v = self.b, self.v
        at = self.scales.offset(self.arg.extra, b.mul(block, const(TILE)))
        scale = widen(b, self.scales.load(at), self.how.weights.scale, "f32")
        memory = v.at(self.memory, turn * TILE * TILE)
        return [
            v.multiply_add(v.load(v.at(memory, row * TILE)), scale, total)
            for row, total in enumerate(sums)
        ]
