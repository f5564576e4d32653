"""The micro-kernel of quantised weights: a tile of C as integer products of slices of A and codes.

    C[rows, cols] = relu?( (C | 0) + bias? + sum over blocks of
        scale_a * scale_b * (sum over k of slices of A[rows, k] * (codes[k, cols] - zero)) )

Each vector of columns is a stream of memory, and codes of 4 bits are unpacked in registers: one
load has eight codes of sixteen columns. Sums of a block are exact in i32, and begin from what makes
up for zero points; with the scales they are added to sums in f32
(`tilewise.kernels.arithmetic.SlicedWeights`).
"""

from dataclasses import dataclass
from typing import ClassVar, Self

from llvmlite import ir

from tilewise.kernels.arithmetic import Arithmetic, SlicedWeights, size_of
from tilewise.kernels.instructions import Form, known_instruction
from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import CountedLoop
from tilewise.kernels.native.ir.dot_products import multiply_add, widen
from tilewise.kernels.native.ir.functions import Floats
from tilewise.kernels.native.ir.vectors import ELEMENTS, Value, Vectors, const
from tilewise.kernels.native.microkernels.abi import Arguments, epilogue_flags
from tilewise.kernels.native.microkernels.building_blocks import (
    EpilogueEmitter,
    begin_kernel,
    emit_results,
    vectors_of_tile,
)
from tilewise.kernels.native.microkernels.microkernel import ANY_USE, Piece, Use
from tilewise.kernels.native.packing.quantised import PLACES, emit_pack_weights, emit_slice_rows
from tilewise.kernels.native.strides import Strides
from tilewise.kernels.nest import Nest
from tilewise.kernels.target.model import Target

MOST_PAIRS = 8
"""Words of codes of 4 bits whose sums of two products are added in i16: 2 * 15 * 128 at most."""


@dataclass(frozen=True)
class WeightOnlySpec:
    """All that the code depends on.

    Attributes:
        how: the arithmetic.
        rows, vectors, lanes: register rows, register columns in vectors, elements of a vector.
        a_row: bytes between packed rows of A.
        epilogue: which of `ADD_BIAS` and `RELU` a call may ask for, and `CEILING`.
        fuses: whether the target multiplies and adds f32 in one instruction.
    """

    how: SlicedWeights
    rows: int
    vectors: int
    lanes: int
    a_row: int
    epilogue: int
    fuses: bool

    @property
    def cols(self) -> int:
        """Return the columns of the register tile."""
        return self.vectors * self.lanes

    def steps(self, multiply_adds: int) -> int:
        """Return the blocks of the reduction that so many vector multiply-adds take."""
        return multiply_adds // (self.rows * self.vectors * self.products)

    @property
    def products(self) -> int:
        """Return the multiply-adds of a block for one vector of columns of one row."""
        return self.how.products * self.how.depth // self.how.instruction.k


@dataclass(frozen=True)
class WeightOnlyProduct:
    """The micro-kernel of quantised weights, and the packs that feed it.

    Attributes:
        spec: what its code depends on.
    """

    spec: WeightOnlySpec

    form: ClassVar[Form] = Form.OUTER_PRODUCT

    @classmethod
    def serves(cls, nest: Nest) -> bool:
        """Return whether weights are quantised."""
        return nest.problem.quantised_weights is not None

    @classmethod
    def of(cls, nest: Nest, target: Target, strides: Strides, how: Arithmetic) -> Self:
        """Return the one for a nest; LoweringError for columns that are not whole vectors."""
        vectors = vectors_of_tile(nest, target)
        assert isinstance(how, SlicedWeights)
        return cls(
            WeightOnlySpec(
                how=how,
                rows=nest.tile.rows,
                vectors=vectors,
                lanes=nest.tile.cols // vectors,
                a_row=strides.packed_a.row,
                epilogue=epilogue_flags(nest.store),
                fuses="fma" in target.features or target.vector_bytes == 64,
            )
        )

    def pieces(self, use: Use = ANY_USE) -> dict[str, Piece]:
        """Return its functions, which serve any use."""
        spec = self.spec
        return {
            "full": Piece("full weight-only", (spec, False), emit_weight_only),
            "edge": Piece("edge weight-only", (spec, True), emit_weight_only),
            "pack_b_panel": Piece(
                "panels of weights", (spec.how, spec.cols, spec.lanes), emit_pack_weights
            ),
            "copy_rows": Piece("slices of a", (spec.how, spec.lanes), emit_slice_rows),
        }


def emit_weight_only(module: ir.Module, spec: WeightOnlySpec, is_edge: bool) -> ir.Function:
    """Add the micro-kernel for whole tiles, or with `is_edge` for any rows and cols in them.

    Rows past the last one repeat it, and columns past the last one are masked.
    """
    fn, builder, arg = begin_kernel(module, "edge" if is_edge else "full", Arguments)
    _Emitter(builder, spec, arg, is_edge).emit()
    builder.ret_void()
    return fn


class _Emitter:
    """One emission."""

    def __init__(
        self, b: Builder, spec: WeightOnlySpec, arg: Arguments[Value], is_edge: bool
    ) -> None:
        self.b, self.spec, self.arg, self.how = b, spec, arg, spec.how
        self.v = Vectors(b, ELEMENTS["f32"], spec.lanes, fma=spec.fuses)
        self.ints = Vectors(b, ELEMENTS["i32"], spec.lanes)
        self.pairs = Vectors(b, ELEMENTS["i16"], 2 * spec.lanes)
        self.floats = Floats(self.v)
        self.masks = [
            self.v.first_lanes(arg.cols, j * spec.lanes) if is_edge else None
            for j in range(spec.vectors)
        ]
        self.rows = [const(i) for i in range(spec.rows)]
        if is_edge:
            last = b.sub(arg.rows, const(1))
            self.rows = [b.select(b.icmp_signed("<", i, last), i, last) for i in self.rows]

    def emit(self) -> None:
        """Emit the sums of all blocks, what is added to them, and the stores."""
        b, spec, arg, v = self.b, self.spec, self.arg, self.v
        grid = [(i, j) for i in range(spec.rows) for j in range(spec.vectors)]
        starts = [b.add(arg.a, b.mul(row, const(spec.a_row))) for row in self.rows]
        word = CountedLoop(b, [v.zero] * len(grid), "block")
        ahead = b.mul(word.index, const(self.how.packed_word))
        sums = self._block([b.add(start, ahead) for start in starts], word.index, word.carried)
        sums = word.close(sums, arg.depth, 1)
        places = [v.at(v.offset(arg.c, b.mul(arg.c_row, self.rows[i])), j * spec.lanes)
                  for i, j in grid]  # fmt: skip
        masks = [self.masks[j] for _, j in grid]
        biases = [v.at(arg.bias, j * spec.lanes) for _, j in grid]
        emit_results(EpilogueEmitter(v, arg.flags, spec.epilogue), sums, places, biases, masks)

    def _block(self, rows: list[Value], block: Value, sums: list[Value]) -> list[Value]:
        """The sums plus those of a block of the reduction."""
        b, spec, how = self.b, self.spec, self.how
        of_vector = b.mul(self.arg.depth, const(spec.lanes * how.codes_bytes))
        codes = b.add(self.arg.b, b.mul(block, const(spec.lanes * how.codes_bytes)))
        streams = [b.add(codes, b.mul(of_vector, const(j))) for j in range(spec.vectors)]
        behind = b.add(self.arg.b, b.mul(of_vector, const(spec.vectors)))
        constants = [self._constants(behind, block, j) for j in range(spec.vectors)]
        found = self._products(rows, streams, [zero for _, zero in constants])
        out = list(sums)
        for j, (scale, _) in enumerate(constants):
            for i, row in enumerate(rows):
                at = self.b.add(row, const(how.products * (how.depth + size_of("i32"))))
                factor = self.b.fmul(self.v.load_splat(at), scale)
                index = i * spec.vectors + j
                out[index] = self.v.multiply_add(self._joined(found[i, j]), factor, out[index])
        return out

    def _products(
        self, rows: list[Value], streams: list[Value], zeros: list[Value | None]
    ) -> dict[tuple[int, int], list[Value]]:
        """For each row and vector, sums of the products of each slice with all codes of a block."""
        spec, how, one = self.spec, self.how, self.how.instruction
        parts = 8 // how.weights.bits
        sums = {
            (i, j): [self._begin(row, piece, zero) for piece in range(how.products)]
            for i, row in enumerate(rows)
            for j, zero in enumerate(zeros)
        }
        pairs: dict[tuple[int, int, int], Value] = {}
        fours = how.depth // parts // PLACES
        for four in range(fours):
            bytes_of = [self.ints.load(self.ints.at(at, four * spec.lanes)) for at in streams]
            for part in range(parts):
                codes = [self._unpacked(stored, part) for stored in bytes_of]
                for i, row in enumerate(rows):
                    for piece in range(how.products):
                        place = piece * how.depth + (part * fours + four) * PLACES
                        factor = self.ints.load_splat(self.b.add(row, const(place)))
                        for j in range(spec.vectors):
                            if one.pairs:
                                before = pairs.get((i, j, piece), self.pairs.zero)
                                after = multiply_add(self.pairs, one, codes[j], factor, before)
                                pairs[i, j, piece] = after
                            else:
                                before = sums[i, j][piece]
                                sums[i, j][piece] = self._multiply(codes[j], factor, before)
                if (four * parts + part + 1) % MOST_PAIRS == 0:
                    self._join_pairs(pairs, sums)
        self._join_pairs(pairs, sums)
        return sums

    def _begin(self, row: Value, piece: int, zero: Value | None) -> Value:
        """What the sums of a slice begin from: less its sum, times the zero points."""
        at = self.b.add(row, const(self.how.products * self.how.depth))
        begins = self.ints.load_splat(self.ints.at(at, piece))
        return begins if zero is None else self.b.mul(begins, zero)

    def _join_pairs(
        self, pairs: dict[tuple[int, int, int], Value], sums: dict[tuple[int, int], list[Value]]
    ) -> None:
        """Add each two neighbouring sums of pairs to the sums of their column."""
        ones = ir.Constant(self.pairs.type, [1] * self.pairs.lanes)
        for (i, j, piece), found in pairs.items():
            one = known_instruction(f"{self.how.instruction.unit}.vpmaddwd.i16")
            sums[i, j][piece] = multiply_add(self.ints, one, found, ones, sums[i, j][piece])
        pairs.clear()

    def _multiply(self, codes: Value, factor: Value, total: Value) -> Value:
        """The sums plus the products of four codes of each column with four bytes of A."""
        one, v, b = self.how.instruction, self.ints, self.b
        parts = PLACES // one.k
        if parts == 1:
            return multiply_add(v, one, codes, factor, total)
        wide, kept = 8 * parts, 8 * (parts - 1)  # bits of a factor, and those above a byte
        mask = int.from_bytes(([255] + [0] * (parts - 1)) * one.k, "little")
        elements = ir.VectorType(ir.IntType(wide), one.k * self.spec.lanes)
        bytes_of_a = b.bitcast(factor, elements)
        for place in range(parts):
            code = b.and_(b.lshr(codes, self._number(8 * place)), self._number(mask))
            up, down = (
                ir.Constant(elements, [n] * elements.count) for n in (kept - 8 * place, kept)
            )
            byte = b.bitcast(b.ashr(b.shl(bytes_of_a, up), down), v.type)
            total = multiply_add(v, one, code, byte, total)
        return total

    def _unpacked(self, codes: Value, part: int) -> Value:
        """Either half of the bytes, as bytes; whole ones of codes of 8 bits."""
        if self.how.weights.bits == 8:
            return codes
        shifted = self.b.lshr(codes, self._number(4 * part)) if part else codes
        return self.b.and_(shifted, self._number(0x0F0F0F0F))

    def _joined(self, slices: list[Value]) -> Value:
        """The sums of all slices in f32; those of two slices fit an i32."""
        b, kind = self.b, self.v.type
        total = slices[0]
        if len(slices) > 1:
            total = b.add(b.shl(total, self._number(8)), slices[1])
        whole = b.sitofp(total, kind)
        if len(slices) <= 2:
            return whole
        last = b.sitofp(slices[2], kind)
        return self.v.multiply_add(whole, self.floats.number(256.0), last)

    def _constants(self, at: Value, block: Value, vector: int) -> tuple[Value, Value | None]:
        """The scales of a vector of columns, and zero points in i32; None where all are equal."""
        b, spec, weights = self.b, self.spec, self.how.weights
        stored = Vectors(b, ELEMENTS[weights.scale], spec.lanes)
        first = b.add(b.mul(block, const(spec.cols)), const(vector * spec.lanes))
        scale = widen(b, stored.load(stored.offset(at, first)), weights.scale, "f32")
        if not weights.zero:
            return scale, None
        small = Vectors(b, ELEMENTS["u8"], spec.lanes)
        behind = stored.offset(at, b.mul(self.arg.depth, const(spec.cols)))
        return scale, b.zext(small.load(small.offset(behind, first)), self.ints.type)

    def _number(self, value: int) -> Value:
        return ir.Constant(self.ints.type, [value] * self.spec.lanes)
