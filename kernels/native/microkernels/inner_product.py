"""The micro-kernel of a split reduction: a tile of C as inner products, vectors along k.

    C[rows, cols] = relu?( (C | 0) + bias? + sum over k of A[rows, k] * B[k, cols] )

Where C is narrow, as in a matrix times a vector, outer products leave most lanes
idle. Here every element of C has its own vectors of partial sums, which rows of A and
columns of B, both contiguous along k, are multiplied into; `strips` adds them up.

A tile whose partial sums fit the registers is computed at once, so that a vector of B
serves all its rows. Another is computed row by row, which reads A in one stream, the way
that caches beyond the first deliver fastest: 85 against 76 GFLOP/s for f32 128x1x1408, on Zen 5.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from llvmlite import ir

from tilewise.kernels.arithmetic import Arithmetic
from tilewise.kernels.instructions import Form
from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import Loop, branch
from tilewise.kernels.native.ir.dot_products import multiply_add, widen
from tilewise.kernels.native.ir.vectors import ELEMENTS, Value, Vectors, const, internal_function
from tilewise.kernels.native.microkernels.abi import ARGUMENTS, Arguments
from tilewise.kernels.native.microkernels.inner_product_spec import (
    InnerProductSpec,
    inner_product_spec,
)
from tilewise.kernels.native.microkernels.partial_sums import Strips
from tilewise.kernels.native.microkernels.specs import Piece, packs_of_a
from tilewise.kernels.native.microkernels.use import ANYHOW, Use
from tilewise.kernels.native.packing.panels import PANEL_ARGUMENTS
from tilewise.kernels.native.strides import Strides
from tilewise.kernels.nest import Nest
from tilewise.kernels.target.model import Target

# Of a stream: 5% for f32 128x1x1408, which lies in L2; 1 to 2% for 3072x1x1024, in L3.
STREAM_AHEAD_BYTES = 4096


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
        """Return the one that a nest asks for; LoweringError for what the target has not."""
        return cls(inner_product_spec(nest, target, strides, how), strides.b.is_transposed)

    def pieces(self, use: Use = ANYHOW) -> dict[str, Piece]:
        """Its functions, which serve any use."""
        how, lanes = self.spec.how, self.spec.lanes
        columns = (how.stored, self.packs_transposed)
        return {
            "full": Piece("full product", (self.spec, False), emit_inner_product),
            "edge": Piece("edge product", (self.spec, True), emit_inner_product),
            "pack_b_panel": Piece("columns of b", columns, emit_pack_columns),
        } | packs_of_a(how, lanes)


def emit_inner_product(module: ir.Module, spec: InnerProductSpec, edge: bool) -> ir.Function:
    """Add the micro-kernel to `module`; with `edge` for any number of rows and cols in the tile."""
    name = "edge" if edge else "full"
    fn = internal_function(module, f"tilewise_kernel_{name}", len(ARGUMENTS))
    return _Emitter(fn, spec, edge).emit()


@dataclass(frozen=True)
class _Group:
    """Rows and columns of the tile that are summed side by side.

    The accumulators of one element are neighbours, elements come in the order of C.
    """

    rows: list[int]
    cols: list[int]

    @property
    def elements(self) -> int:
        return len(self.rows) * len(self.cols)


class _Emitter:
    """One emission; holds the builder, the arguments by name, and offsets of rows and columns."""

    def __init__(self, fn: ir.Function, spec: InnerProductSpec, edge: bool) -> None:
        self.fn, self.spec, self.edge = fn, spec, edge
        self.arg: Arguments[Value] = Arguments(*fn.args)
        self.builder = Builder(fn.append_basic_block("entry"))
        self.v = Vectors(self.builder, ELEMENTS[spec.how.accumulator], spec.lanes)
        self.stored = Vectors(self.builder, ELEMENTS[spec.how.stored], spec.span)
        b_col = const(spec.b_col) if spec.b_col else self.arg.depth
        self.a_offsets = self._offsets(spec.rows, self.arg.rows, const(spec.a_row))
        self.b_offsets = self._offsets(spec.cols, self.arg.cols, b_col)

    def emit(self) -> ir.Function:
        totals = [total for group in self._groups() for total in self._group(group)]
        Strips(self.builder, self.spec, self.arg, self.edge).finish(totals)
        self.builder.ret_void()
        return self.fn

    def _groups(self) -> list[_Group]:
        """The tile in parts that are summed one after another, in the order of C's elements."""
        spec = self.spec
        rows, cols = list(range(spec.rows)), list(range(spec.cols))
        if spec.at_once:
            return [_Group(rows, cols)]
        if spec.rows > 1:
            return [_Group([row], cols) for row in rows]
        return [_Group(rows, [col]) for col in cols]

    def _group(self, group: _Group) -> list[Value]:
        """One vector of partial sums for each element of the group."""
        vectors = self.spec.vectors
        parts = self._reduce(group, [self.v.zero] * (group.elements * vectors))
        return [self._total(parts[i : i + vectors]) for i in range(0, len(parts), vectors)]

    def _total(self, parts: list[Value]) -> Value:
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=False)
            parts = [self.v.add(x, y) for x, y in pairs] + parts[len(parts) & ~1 :]
        return parts[0]

    def _offsets(self, count: int, limit: Value, stride: Value) -> list[Value]:
        """Offsets of rows or columns; an edge tile reads its last one again, never beyond."""
        b = self.builder
        if not self.edge:
            return [b.mul(const(i), stride) for i in range(count)]
        last = b.sub(limit, const(1))
        inside = [b.icmp_signed("<", const(i), limit) for i in range(count)]
        return [b.mul(b.select(on, const(i), last), stride) for i, on in enumerate(inside)]

    def _reduce(self, group: _Group, parts: list[Value]) -> list[Value]:
        """All accumulators at a time, then the vectors that are left, then what is left of one."""
        b, spec, depth = self.builder, self.spec, self.arg.depth
        block = spec.span * spec.vectors * spec.unroll
        whole = b.sub(depth, b.srem(depth, const(block)))
        rest = b.srem(depth, const(spec.span))
        full = b.sub(depth, rest)
        parts = self._loop(group, parts, (const(0), whole), spec.vectors * spec.unroll)
        if block > spec.span:
            parts = self._loop(group, parts, (whole, full), 1)
        mask = self.stored.first_lanes(rest, 0)
        left = b.icmp_signed(">", rest, const(0))
        return branch(b, left, lambda p: self._products(group, p, full, 0, mask), parts)

    def _loop(
        self, group: _Group, parts: list[Value], ends: tuple[Value, Value], steps: int
    ) -> list[Value]:
        """Add the products of [start, end), vector by vector, `steps` in an iteration."""
        b = self.builder
        start, end = ends
        count = b.sub(end, start)

        def body(parts: list[Value]) -> list[Value]:
            loop = Loop(b, parts, f"depth.by{steps}")
            at, current = b.add(start, loop.index), loop.carried
            for step in range(steps):
                current = self._products(group, current, at, step, None)
            return loop.close(current, count, steps * self.spec.span)

        return branch(b, b.icmp_signed(">", count, const(0)), body, parts)

    def _products(
        self, group: _Group, parts: list[Value], at: Value, step: int, mask: Value | None
    ) -> list[Value]:
        """The parts plus the products of the vector `step` of the reduction from `at`."""
        spec, out = self.spec, list(parts)
        index = step % spec.vectors
        cols = [self._factor("b", self.b_offsets[j], at, step, mask) for j in group.cols]
        for i in group.rows:
            row = self._factor("a", self.a_offsets[i], at, step, mask)
            for col in cols:
                out[index] = multiply_add(self.v, spec.how.instruction, row, col, out[index])
                index += spec.vectors
        return out

    def _factor(
        self, name: Literal["a", "b"], offset: Value, at: Value, step: int, mask: Value | None
    ) -> Value:
        """A vector of a row of A or of a column of B, as it is multiplied."""
        how, stored = self.spec.how, self.stored
        start = self.arg.a if name == "a" else self.arg.b
        address = stored.offset(stored.offset(start, at), offset)
        address = stored.at(address, step * self.spec.span)
        loaded = stored.load(address, mask)
        if name == self.spec.ahead and mask is None:
            stored.prefetch(self.builder.add(address, const(STREAM_AHEAD_BYTES)), level=1)
        return widen(self.builder, loaded, how.stored, how.instruction.b)


def emit_pack_columns(module: ir.Module, stored: str, transposed: bool) -> ir.Function:
    """to[cols][depth] = source[depth][cols], or source[cols][depth] where B is transposed.

    One element at a time: B is small beside A where its columns are this few.
    """
    fn = internal_function(module, "tilewise_pack_b_panel", len(PANEL_ARGUMENTS))
    arg = dict(zip(PANEL_ARGUMENTS, fn.args, strict=True))
    b = Builder(fn.append_basic_block("entry"))
    one = Vectors(b, ELEMENTS[stored], 1)
    cols = Loop(b, (), "col")
    steps = Loop(b, (), "step")
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
