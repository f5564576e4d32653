"""The walk over groups of columns of a chunk whose words several register tiles share.

The first tile of rows joins the words of a group and puts them on the stack, beside its products;
the others find them there. On processors with one port for shuffles joining them again for each
tile would take half as long as the products. A group's words fit the first cache; the rows of B
that they come from need not.

Between chunks the sums of a group lie in a panel of their own, row behind row. Rows of C may be a
multiple of a page apart, which meet in one set of the first cache, and are more pages than there
are places for stores' addresses. The chunk's words of A are brought together on the stack for the
same reason.
"""

from dataclasses import replace

from llvmlite import ir

from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import Loop, Transform, branch
from tilewise.kernels.native.ir.vectors import ELEMENTS, Value, Vectors, const
from tilewise.kernels.native.microkernels.abi import FROM_WORDS, SweepArguments
from tilewise.kernels.native.microkernels.sweep.chunk_of_a import ChunkOfA
from tilewise.kernels.native.microkernels.sweep.panel_tile import PanelTile
from tilewise.kernels.native.microkernels.sweep.products import Products
from tilewise.kernels.native.microkernels.sweep.row_tile import BETWEEN
from tilewise.kernels.native.microkernels.sweep.spec import SweepSpec
from tilewise.kernels.native.microkernels.sweep.spread_fetch import SpreadFetch


class ColumnGroups:
    """Emits the products of a whole chunk, in all whole groups of columns.

    Begin it in the function's first block, which has what lies on the stack.
    """

    def __init__(self, builder: Builder, spec: SweepSpec, arg: SweepArguments[Value]) -> None:
        self.builder, self.spec, self.arg = builder, spec, arg
        self.sums = Vectors(builder, ELEMENTS[spec.how.accumulator], spec.lanes)
        self.words = self._on_the_stack(spec.words * spec.vectors)
        self.corrections = self._on_the_stack(spec.all_rows) if spec.how.offset else None
        row = Vectors(builder, ELEMENTS[spec.how.stored], spec.depth)
        bytes_of_a = spec.all_rows * spec.depth * row.element.bytes
        vector_bytes = spec.lanes * self.sums.element.bytes
        self.row_of_a, self.a = row, self._on_the_stack(-(-bytes_of_a // vector_bytes))

    def _on_the_stack(self, vectors: int) -> Value:
        place = ir.ArrayType(ir.VectorType(ELEMENTS["i32"].type, self.spec.lanes), vectors)
        return self.builder.ptrtoint(self.builder.alloca(place))

    def emit(self) -> Value:
        """All whole groups; how many columns they are."""
        b, cols = self.builder, self.arg.cols
        whole = b.sub(cols, b.srem(cols, const(self.spec.cols)))
        branch(b, b.icmp_signed(">", whole, const(0)), self._walks(whole), [])
        return whole

    def _walks(self, whole: Value) -> Transform:
        def walks(nothing: list[Value]) -> list[Value]:
            b = self.builder
            if self.corrections is not None:
                branch(b, self._is_first(), self._put_corrections, [])
            self._put_a()
            is_between = b.icmp_signed("==", self.arg.flags, const(BETWEEN))
            between, other = (self._walk(whole, is_so) for is_so in (True, False))
            return branch(b, is_between, between, nothing, other)

        return walks

    def _put_a(self) -> None:
        """Copy the chunk of A, row behind row."""
        b, row = self.builder, self.row_of_a
        loop = Loop(b, (), "rows.of.a")
        value = row.load(row.offset(self.arg.a, b.mul(loop.index, const(self.spec.a_row))))
        row.store(value, row.offset(self.a, b.mul(loop.index, const(self.spec.depth))))
        loop.close((), self.arg.rows, 1)

    def _is_first(self) -> Value:
        """Whether no chunk came before."""
        flag = self.builder.and_(self.arg.flags, const(FROM_WORDS))
        return self.builder.icmp_signed("==", flag, const(0))

    def _put_corrections(self, nothing: list[Value]) -> list[Value]:
        """For each row what makes up for bytes of B that were made unsigned."""
        assert self.corrections is not None
        alone, b = replace(self.spec, rows=1), self.builder
        loop = Loop(b, (), "corrections")
        row_bytes = self.spec.a_row * ELEMENTS[self.spec.how.stored].bytes
        at = b.add(self.arg.a, b.mul(loop.index, const(row_bytes)))
        (total,) = ChunkOfA(b, alone, at, self.arg.depth).corrections_of_all()
        self.sums.store(total, self._correction(loop.index))
        loop.close((), self.arg.rows, 1)
        return nothing

    def _correction(self, row: Value) -> Value:
        return self.sums.offset(self.corrections, self.builder.mul(row, const(self.spec.lanes)))

    def _walk(self, whole: Value, is_between: bool) -> Transform:
        def walk(nothing: list[Value]) -> list[Value]:
            loop = Loop(self.builder, (), "groups")
            self._tiles(loop.index, is_between)
            loop.close((), whole, self.spec.cols)
            return nothing

        return walk

    def _tiles(self, col: Value, is_between: bool) -> None:
        """All rows of a group; the first tile joins words, and the last may be cut off."""
        b, rows = self.builder, self.arg.rows
        rest = b.srem(rows, const(self.spec.rows))
        whole = b.sub(rows, rest)

        def first(nothing: list[Value]) -> list[Value]:
            self._tile(self.spec, const(0), col, is_between, puts_words=True)
            return nothing

        def words_alone(nothing: list[Value]) -> list[Value]:
            nowhere = ChunkOfA(b, self.spec, self.arg.a, self.arg.depth)
            products = Products(b, self.spec, self.arg, nowhere)
            products.put_words(self.words, col, self.spec.vectors)
            return nothing

        def later(nothing: list[Value]) -> list[Value]:
            loop = Loop(b, (), "tiles")
            row = b.add(loop.index, const(self.spec.rows))
            self._tile(self.spec, row, col, is_between)
            loop.close((), b.sub(whole, const(self.spec.rows)), self.spec.rows)
            return nothing

        def last(nothing: list[Value]) -> list[Value]:
            cut = replace(self.spec, rows=self.spec.all_rows % self.spec.rows)
            self._tile(cut, whole, col, is_between)
            return nothing

        branch(b, b.icmp_signed(">", whole, const(0)), first, [], words_alone)
        branch(b, b.icmp_signed(">", whole, const(self.spec.rows)), later, [])
        if self.spec.all_rows % self.spec.rows:
            branch(b, b.icmp_signed(">", rest, const(0)), last, [])

    def _tile(
        self, spec: SweepSpec, row: Value, col: Value, is_between: bool, puts_words: bool = False
    ) -> None:
        b = self.builder
        near = replace(spec, a_row=spec.depth, fetch=None)
        tile = PanelTile(b, near, replace(self.arg, a=self.a), row, self.words, puts_words)
        if self.corrections is not None and not is_between:
            begin = self._correction(row)

            def load(_zeros: list[Value]) -> list[Value]:
                places = [self.sums.at(begin, i * spec.lanes) for i in range(spec.rows)]
                return [self.sums.load(at) for at in places]

            zeros = [self.sums.zero] * spec.rows
            tile.corrections = branch(b, self._is_first(), load, zeros)
        before = b.add(b.mul(col, self.arg.rows), b.mul(row, const(spec.cols)))
        panel = self.sums.offset(self.arg.sums, before)
        if fetch := self.spec.fetch:
            share = -(-self.spec.depth // -(-self.spec.all_rows // self.spec.rows))
            first = b.mul(b.sdiv(row, const(self.spec.rows)), const(share))
            rows, cols = (first, share), (col, self.spec.vectors)
            fetches = SpreadFetch(b, self.spec, self.arg, fetch, rows, cols)
            tile.group(col, panel, is_between, fetches.beside)
        else:
            tile.group(col, panel, is_between, lambda word: None)
