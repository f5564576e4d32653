"""Reads and writes of a row program: where each row of a tensor begins, casts of bf16."""

from llvmlite import ir

from tilewise.kernels.native.ir.builder import typed
from tilewise.kernels.native.ir.vectors import ELEMENTS, I16, I32, I64, Value, Vectors, const
from tilewise.kernels.native.passes.rows.program import RowProgram

FIRST_SOURCE = 4
"""The first word of the sources among the parameters; each has two."""
_HALF = 16


class Accesses:
    """Writes loads and stores of the current row.

    Args:
        program: whose.
        vectors: of f32.
        at: the address of the parameters.
    """

    def __init__(self, program: RowProgram, vectors: Vectors, at: Value) -> None:
        self._program, self._v, self._b, self._at = program, vectors, vectors.builder, at
        self._halves = Vectors(self._b, ELEMENTS["bf16"], vectors.lanes)
        sources = range(len(program.sources))
        self._sources = [self.word(FIRST_SOURCE + 2 * i) for i in sources]
        self._tables = [self.word(FIRST_SOURCE + 2 * i + 1) for i in sources]
        behind = FIRST_SOURCE + 2 * len(program.sources)
        self._targets = [self.word(behind + i) for i in range(len(program.targets))]
        self._rows: list[Value] = []

    def word(self, number: int) -> Value:
        """A parameter."""
        return self._word(self._at, const(number))

    def begin(self, row: Value) -> None:
        """Find where a row begins in each source."""
        self._rows = []
        for number, source in enumerate(self._program.sources):
            step = source.row
            if step is None:
                first = self._word(self._tables[number], row)
            else:
                first = self._b.mul(row, const(step)) if step else const(0)
            kind = self._halves if source.dtype == "bf16" else self._v
            self._rows.append(kind.offset(self._sources[number], first))

    def load(self, source: int, column: Value, mask: Value | None) -> Value:
        """Columns of the row, as f32."""
        if self._program.sources[source].dtype != "bf16":
            return self._v.load(self._v.offset(self._rows[source], column), mask)
        found = self._halves.load(self._halves.offset(self._rows[source], column), mask)
        return self._widened(found)

    def load_one(self, source: int) -> Value:
        """The row's one element in all lanes, as f32."""
        if self._program.sources[source].dtype != "bf16":
            return self._v.load_splat(self._rows[source])
        return self._widened(self._halves.load_splat(self._rows[source]))

    def store(
        self, target: int, row: Value, column: Value, value: Value, mask: Value | None
    ) -> None:
        """Write columns of a row."""
        place = self._b.add(self._b.mul(row, const(self._program.columns)), column)
        self._put(target, place, value, mask)

    def store_one(self, target: int, row: Value, value: Value) -> None:
        """Write a row's one element."""
        self._put(target, row, value, self._v.first_lanes(const(1), 0))

    def _put(self, target: int, place: Value, value: Value, mask: Value | None) -> None:
        if self._program.targets[target].dtype != "bf16":
            self._v.store(value, self._v.offset(self._targets[target], place), mask)
            return
        words = ir.VectorType(I32, self._v.lanes)
        shift = ir.Constant(words, [_HALF] * self._v.lanes)
        high = self._b.ashr(self._b.bitcast(value, words), shift)
        halves = self._b.trunc(high, ir.VectorType(I16, self._v.lanes))
        self._halves.store(halves, self._halves.offset(self._targets[target], place), mask)

    def _widened(self, halves: Value) -> Value:
        words = ir.VectorType(I32, self._v.lanes)
        shift = ir.Constant(words, [_HALF] * self._v.lanes)
        return self._b.bitcast(self._b.shl(self._b.zext(halves, words), shift), self._v.type)

    def _word(self, address: Value, number: Value) -> Value:
        at = self._b.add(address, self._b.mul(number, const(8)))
        pointer = self._b.inttoptr(at, I64.as_pointer())
        return self._b.write(I64, f"load {I64}, {typed(pointer)}, align 8")
