"""The micro-kernel of a split reduction: a tile of C as inner products, vectors along k.

    C[rows, cols] = relu?( (C | 0) + bias? + sum over k of A[rows, k] * B[k, cols] )

Where C is narrow, as in a matrix-vector product, outer products leave most lanes idle. Here every
element of C has its own vectors of partial sums, into which rows of A and columns of B are
multiplied, both contiguous along k. In the end the partial sums of neighbouring elements are added
up together: their sums come out in one vector, which is finished and stored as one.

A tile whose partial sums fit the registers is computed at once, so that a vector of B serves all
its rows. Any other is computed row by row, which reads A in one stream, the way that caches beyond
the first deliver fastest: 85 against 76 GFLOP/s for f32 128x1x1408, on Zen 5.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from llvmlite import ir

from tilewise.kernels.arithmetic import Arithmetic
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.instructions import Form
from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import CountedLoop
from tilewise.kernels.native.ir.dot_products import multiply_add, widen
from tilewise.kernels.native.ir.vectors import ELEMENTS, I32, Value, Vectors, begin_function, const
from tilewise.kernels.native.microkernels.abi import (
    ADD_BIAS,
    LOAD_C,
    RELU,
    Arguments,
    epilogue_flags,
)
from tilewise.kernels.native.microkernels.building_blocks import (
    EpilogueEmitter,
    begin_kernel,
    end_of_whole,
    if_any,
)
from tilewise.kernels.native.microkernels.microkernel import ANY_USE, Piece, Use, packs_of_a
from tilewise.kernels.native.packing.panels import PANEL_ARGUMENTS
from tilewise.kernels.native.strides import Strides
from tilewise.kernels.nest import Nest
from tilewise.kernels.target.model import Target

# Bytes of a stream: 5% for f32 128x1x1408, which is in L2; 1 to 2% for 3072x1x1024, in L3.
PREFETCH_DISTANCE = 4096


@dataclass(frozen=True)
class InnerProductSpec:
    """All that the code of an inner-product micro-kernel depends on.

    Attributes:
        how: the arithmetic, of a split reduction.
        rows, cols: the register tile, in elements of C.
        lanes: elements of an accumulator vector.
        vectors: accumulators of one element of C.
        unroll: times that all accumulators are added to in one iteration.
        a_row: elements between rows of A.
        b_col: elements between columns of B; 0 where they are packed, `depth` apart.
        at_once: whether all elements of the tile are summed together, not row by row.
        prefetched: which operand is prefetched; empty for neither.
        c_down: whether the rows of C are neighbours in memory, C being one column.
        epilogue: which of `ADD_BIAS` and `RELU` a call may ask for, and `CEILING`.
    """

    how: Arithmetic
    rows: int
    cols: int
    lanes: int
    vectors: int
    unroll: int
    a_row: int
    b_col: int
    at_once: bool
    prefetched: Literal["a", "b", ""]
    c_down: bool
    epilogue: int

    @property
    def span(self) -> int:
        """Elements of the reduction in one vector load."""
        return self.lanes * self.how.instruction.k

    def steps(self, multiply_adds: int) -> int:
        """Return the steps of the reduction that so many vector multiply-adds take."""
        return multiply_adds * self.span // (self.rows * self.cols)


@dataclass(frozen=True)
class InnerProduct:
    """The micro-kernel of a schedule with a split step, and the packs that feed it.

    Attributes:
        spec: what its code depends on.
        packs_transposed: whether B is stored with its columns contiguous.
    """

    spec: InnerProductSpec
    packs_transposed: bool

    form: ClassVar[Form] = Form.SPLIT

    @classmethod
    def serves(cls, nest: Nest) -> bool:
        """Return whether the reduction is split."""
        return nest.compute.lanes > 1

    @classmethod
    def of(cls, nest: Nest, target: Target, strides: Strides, how: Arithmetic) -> Self:
        """Return the one for a nest.

        Raises:
            LoweringError: the partial sums are not whole vectors of the target.
        """
        tile, compute, dtype = nest.tile, nest.compute, nest.problem.element.name
        lanes = target.lanes(dtype)
        vectors, rest = divmod(compute.lanes, lanes)
        if rest:
            raise LoweringError(
                f"step split: lanes={compute.lanes} is not a multiple of the "
                f"{lanes} {dtype} lanes of {target.cpu}"
            )
        sums = vectors * tile.cols * tile.rows
        at_once = sums + tile.cols + 1 <= target.vector_registers
        longer: Literal["a", "b"] = "b" if nest.extent(nest.row) < nest.extent(nest.col) else "a"
        spec = InnerProductSpec(
            how=how,
            rows=tile.rows,
            cols=tile.cols,
            lanes=lanes,
            vectors=vectors,
            unroll=compute.unroll,
            a_row=strides.words.a_row,
            b_col=0 if nest.stage("B") else strides.b.dims[nest.col],
            at_once=at_once,
            prefetched="" if at_once and tile.rows * tile.cols > 1 else longer,
            c_down=tile.cols == 1 and strides.c[nest.row] == 1,
            epilogue=epilogue_flags(nest.store),
        )
        return cls(spec, strides.b.is_transposed)

    def pieces(self, use: Use = ANY_USE) -> dict[str, Piece]:
        """Return its functions, which serve any use."""
        columns = (self.spec.how.stored, self.packs_transposed)
        return {
            "full": Piece("full product", (self.spec, False), emit_inner_product),
            "edge": Piece("edge product", (self.spec, True), emit_inner_product),
            "pack_b_panel": Piece("columns of b", columns, emit_pack_columns),
            **packs_of_a(self.spec),
        }


def emit_inner_product(module: ir.Module, spec: InnerProductSpec, edge: bool) -> ir.Function:
    """Add the micro-kernel to `module`; with `edge` for any number of rows and cols in the tile."""
    fn, builder, arg = begin_kernel(module, "edge" if edge else "full", Arguments)
    _Emitter(builder, spec, arg, edge).emit()
    builder.ret_void()
    return fn


@dataclass(frozen=True)
class _Strip:
    """Elements of C that are neighbours in memory, stored by one masked store.

    Attributes:
        elements: their indices in the tile.
        address, bias: of the first element of C, and of its bias; with `c_down` that of all.
        vectors: emits vectors of the strip's width, a power of two.
        mask: which lanes are elements of C; None for all.
    """

    elements: range
    address: Value
    bias: Value
    vectors: Vectors
    mask: Value | None


class _Emitter:
    """One emission.

    A group is the rows and columns of the tile that are summed together. The accumulators of one
    element are neighbours, and elements are in the order of C.
    """

    def __init__(
        self, builder: Builder, spec: InnerProductSpec, arg: Arguments[Value], edge: bool
    ) -> None:
        self.builder, self.spec, self.arg, self.edge = builder, spec, arg, edge
        self.v = Vectors(self.builder, ELEMENTS[spec.how.accumulator], spec.lanes)
        self.stored = Vectors(self.builder, ELEMENTS[spec.how.stored], spec.span)
        b_col = const(spec.b_col) if spec.b_col else self.arg.depth
        self.a_offsets = self._offsets(spec.rows, self.arg.rows, const(spec.a_row))
        self.b_offsets = self._offsets(spec.cols, self.arg.cols, b_col)

    def emit(self) -> None:
        """Emit the products, and C's update."""
        totals = [total for rows, cols in self._groups() for total in self._totals(rows, cols)]
        self._finish(totals)

    def _groups(self) -> list[tuple[Sequence[int], Sequence[int]]]:
        """Return the groups, in the order of C's elements."""
        rows, cols = range(self.spec.rows), range(self.spec.cols)
        if self.spec.at_once:
            return [(rows, cols)]
        return [([row], cols) for row in rows] if len(rows) > 1 else [(rows, [j]) for j in cols]

    def _offsets(self, count: int, limit: Value, stride: Value) -> list[Value]:
        """Offsets of rows or columns; an edge tile reads its last one again, never beyond."""
        b = self.builder
        if not self.edge:
            return [b.mul(const(i), stride) for i in range(count)]
        last = b.sub(limit, const(1))
        inside = [b.icmp_signed("<", const(i), limit) for i in range(count)]
        return [b.mul(b.select(on, const(i), last), stride) for i, on in enumerate(inside)]

    # Products

    def _totals(self, rows: Sequence[int], cols: Sequence[int]) -> list[Value]:
        """Return a vector of partial sums for each element of a group.

        All accumulators are added to at a time, then by vectors that are left, then by what is left
        of one.
        """
        b, spec, depth = self.builder, self.spec, self.arg.depth
        block = spec.span * spec.vectors * spec.unroll
        parts = [self.v.zero] * (len(rows) * len(cols) * spec.vectors)

        def products(parts: list[Value], at: Value, step: int, mask: Value | None) -> list[Value]:
            """The parts plus the products of vector `step` of the reduction from `at`."""
            out, index = list(parts), step % spec.vectors
            columns = [self._factor("b", self.b_offsets[j], at, step, mask) for j in cols]
            for i in rows:
                row = self._factor("a", self.a_offsets[i], at, step, mask)
                for column in columns:
                    one = spec.how.instruction
                    out[index] = multiply_add(self.v, one, row, column, out[index])
                    index += spec.vectors
            return out

        def loop(parts: list[Value], start: Value, end: Value, steps: int) -> list[Value]:
            """The parts plus the products of [start, end), `steps` vectors in an iteration."""
            count = b.sub(end, start)

            def body(parts: list[Value]) -> list[Value]:
                depth = CountedLoop(b, parts, f"depth.by{steps}")
                at, current = b.add(start, depth.index), depth.carried
                for step in range(steps):
                    current = products(current, at, step, None)
                return depth.close(current, count, steps * spec.span)

            return if_any(b, count, body, parts)

        whole = end_of_whole(b, depth, block)
        rest = b.srem(depth, const(spec.span))
        full = b.sub(depth, rest)
        parts = loop(parts, const(0), whole, spec.vectors * spec.unroll)
        if block > spec.span:
            parts = loop(parts, whole, full, 1)
        mask = self.stored.first_lanes(rest, 0)
        parts = if_any(b, rest, lambda p: products(p, full, 0, mask), parts)
        return [self._sum(parts[i : i + spec.vectors]) for i in range(0, len(parts), spec.vectors)]

    def _sum(self, parts: list[Value]) -> Value:
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=False)
            parts = [self.v.add(x, y) for x, y in pairs] + parts[len(parts) & ~1 :]
        return parts[0]

    def _factor(
        self, name: Literal["a", "b"], offset: Value, at: Value, step: int, mask: Value | None
    ) -> Value:
        """A vector of a row of A or of a column of B, as it is multiplied."""
        how, stored = self.spec.how, self.stored
        start = self.arg.a if name == "a" else self.arg.b
        address = stored.offset(stored.offset(start, at), offset)
        address = stored.at(address, step * self.spec.span)
        loaded = stored.load(address, mask)
        if name == self.spec.prefetched and mask is None:
            stored.prefetch(self.builder.add(address, const(PREFETCH_DISTANCE)), level=1)
        return widen(self.builder, loaded, how.stored_as(name.upper()), how.instruction.b)

    # Partial sums into C

    def _finish(self, totals: list[Value]) -> None:
        """Add up the partial sums of each element, then C, bias and relu, and store."""
        spec = self.spec
        if spec.c_down:
            strips = [self._strip(0, i, spec.rows) for i in range(0, spec.rows, spec.lanes)]
        else:
            starts = range(0, spec.cols, spec.lanes)
            strips = [self._strip(i, j, spec.cols) for i in range(spec.rows) for j in starts]
        sums = []
        for strip in strips:
            vectors = [totals[i] for i in strip.elements]
            sums.append(
                self._folded(vectors + [self.v.zero] * (strip.vectors.lanes - len(vectors)))
            )
        epilogue = EpilogueEmitter(self.v, self.arg.flags, spec.epilogue)
        sums = epilogue.add(
            LOAD_C, sums, lambda: (s.vectors.load(s.address, s.mask) for s in strips)
        )
        sums = epilogue.add(ADD_BIAS, sums, lambda: map(self._bias, strips))

        def relu(values: list[Value]) -> list[Value]:
            pairs = zip(strips, values, strict=True)
            return [strip.vectors.relu(x, epilogue.ceiling) for strip, x in pairs]

        sums = epilogue.when(RELU, relu, sums)
        for strip, value in zip(strips, sums, strict=True):
            strip.vectors.store(value, strip.address, strip.mask)

    def _bias(self, strip: _Strip) -> Value:
        if self.spec.c_down:
            return strip.vectors.load_splat(strip.bias)
        return strip.vectors.load(strip.bias, strip.mask)

    def _strip(self, row: int, first: int, end: int) -> _Strip:
        """The elements [first, end) of a row of C, or of its column, at most a vector of them."""
        b, spec = self.builder, self.spec
        count = min(end - first, spec.lanes)
        width = 1 << (count - 1).bit_length()
        v = Vectors(b, ELEMENTS[spec.how.accumulator], width)
        mask = None
        if self.edge:
            mask = v.first_lanes(self.arg.rows if spec.c_down else self.arg.cols, first)
            mask = b.and_(mask, v.splat(b.icmp_signed("<", const(row), self.arg.rows)))
        elif width > count:
            mask = v.first_lanes(const(count), 0)
        start = row * spec.cols + first
        address = v.at(v.offset(self.arg.c, b.mul(self.arg.c_row, const(row))), first)
        bias = self.arg.bias if spec.c_down else v.at(self.arg.bias, first)
        return _Strip(range(start, start + count), address, bias, v, mask)

    def _folded(self, vectors: list[Value]) -> Value:
        """Return the sums of a power of two of vectors, at most `lanes`, in one vector.

        A vector holds blocks, each the partial sums of one of `vectors`; a round halves the blocks,
        of two vectors into one while there are two.
        """
        block = self.spec.lanes
        while block > 1:
            pairs = zip(vectors[::2], vectors[1::2] or [None], strict=True)
            vectors = [self._halved(x, y, block) for x, y in pairs]
            block //= 2
        return vectors[0]

    def _halved(self, x: Value, y: Value | None, block: int) -> Value:
        """Lower plus upper half of each block of x, then of y."""
        half = block // 2
        lanes = x.type.count * (1 if y is None else 2)
        low = [start + i for start in range(0, lanes, block) for i in range(half)]
        indices = ir.VectorType(I32, len(low))
        other = ir.Constant(x.type, ir.Undefined) if y is None else y
        lower = self.builder.shuffle_vector(x, other, ir.Constant(indices, low))
        upper = [lane + half for lane in low]
        return self.v.add(lower, self.builder.shuffle_vector(x, other, ir.Constant(indices, upper)))


def emit_pack_columns(module: ir.Module, stored: str, transposed: bool) -> ir.Function:
    """to[cols][depth] = source[depth][cols], or source[cols][depth] where B is transposed.

    One element at a time: B is small compared with A where its columns are this few.
    """
    fn, b, arg = begin_function(module, "tilewise_pack_b_panel", PANEL_ARGUMENTS)
    one = Vectors(b, ELEMENTS[stored], 1)
    cols = CountedLoop(b, (), "col")
    steps = CountedLoop(b, (), "step")
    row, col = steps.index, cols.index
    if transposed:
        row, col = col, row
    source = one.offset(arg["source"], b.add(b.mul(row, arg["source_row"]), col))
    to = b.add(b.mul(cols.index, arg["depth"]), steps.index)
    one.store(one.load(source), one.offset(arg["to"], to))
    steps.close((), arg["depth"], 1)
    cols.close((), arg["cols"], 1)
    b.ret_void()
    return fn
