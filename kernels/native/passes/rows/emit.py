"""Emit a row program as a function in LLVM IR.

A short row stays in registers between phases. In a long one each phase loops over columns, and
values for later phases are on the stack.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from llvmlite import ir

from tilewise.kernels.native.ir.builder import Builder, typed
from tilewise.kernels.native.ir.control import CountedLoop
from tilewise.kernels.native.ir.functions import FUNCTIONS, NEUTRAL, Floats
from tilewise.kernels.native.ir.vectors import ELEMENTS, I16, I32, I64, VOID, Value, Vectors, const
from tilewise.kernels.native.passes.rows.program import (
    COMPARE,
    NUMBER,
    READ,
    REDUCTIONS,
    SELECT,
    Operation,
    RowProgram,
    operands,
    phases_of,
)

FIRST_SOURCE = 4
"""The first word of the sources among the parameters; each has two."""
_HALF = 16


class Accesses:
    """Emits loads and stores of the current row."""

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
        """Return a parameter."""
        return self._word(self._at, const(number))

    def begin(self, row: Value) -> None:
        """Compute the start of a row in each source."""
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
        """Return columns of the row as f32."""
        if self._program.sources[source].dtype != "bf16":
            return self._v.load(self._v.offset(self._rows[source], column), mask)
        found = self._halves.load(self._halves.offset(self._rows[source], column), mask)
        return self._widened(found)

    def load_one(self, source: int) -> Value:
        """Return the row's one element in all lanes as f32."""
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


LANES = 16
LANES_OF_LONG = 64
"""Of a long row: LLVM makes four instructions of each, of which none waits for another. A function
such as erf is a chain of twenty instructions, each of which waits for the one before."""
MOST_LANES_TO_SPARE = 1.1  # that a row is computed with, over those that it needs
TOGETHER = 4  # vectors of a turn, each with sums of its own
MOST_IN_REGISTERS = 8  # vectors of a short row
MOST_ON_STACK = 1 << 17  # bytes
_NAME = "tilewise_rows"


@dataclass
class _Chunk:
    """Some columns of a row and their values so far; `mask` selects those that exist."""

    column: Value
    mask: Value | None
    values: dict[int, Value] = field(default_factory=dict)


def stack_bytes(program: RowProgram) -> int:
    """Return the stack bytes of a program."""
    if _is_short(program):
        return 0
    return len(phases_of(program).kept) * 4 * _rounded(program.columns, LANES_OF_LONG)


def emit(
    module: ir.Module, program: RowProgram, *, has_fma: bool, name: str = _NAME
) -> ir.Function:
    """Add the pass of a program to a module: a function of the address of its parameters."""
    function = ir.Function(module, ir.FunctionType(VOID, [I64]), name)
    builder = Builder(function.append_basic_block("entry"))
    vectors = Vectors(builder, ELEMENTS["f32"], _lanes(program), has_fma)
    emitter = _Emitter(program, vectors, Accesses(program, vectors, function.args[0]))
    first, end = (emitter.accesses.word(number) for number in (2, 3))
    rows = builder.sub(end, first)
    with builder.if_then(builder.icmp_signed(">", rows, const(0))):
        loop = CountedLoop(builder, [], "row")
        emitter.row(builder.add(first, loop.index))
        loop.close([], rows, 1)
    builder.ret_void()
    return function


def _is_short(program: RowProgram) -> bool:
    return -(-program.columns // LANES) <= MOST_IN_REGISTERS


def _lanes(program: RowProgram) -> int:
    """Return the lanes of a vector: many for a long row, unless the last would be nearly empty."""
    columns = program.columns
    is_full = _rounded(columns, LANES_OF_LONG) <= MOST_LANES_TO_SPARE * _rounded(columns, LANES)
    return LANES if _is_short(program) or not is_full else LANES_OF_LONG


def _rounded(columns: int, lanes: int) -> int:
    return -(-columns // lanes) * lanes


class _Emitter:
    """Emits the operations of a row."""

    def __init__(self, program: RowProgram, vectors: Vectors, accesses: Accesses) -> None:
        self.program, self.v, self.accesses = program, vectors, accesses
        self._builder, self._floats = vectors.builder, Floats(vectors)
        self._phases = phases_of(program)
        self._is_short = _is_short(program)
        self._lanes = vectors.lanes
        self._whole, self._rest = divmod(program.columns, self._lanes)
        self._mask = vectors.first_lanes(const(self._rest), 0) if self._rest else None
        self._kept = {} if self._is_short else self._places()
        self._narrow: dict[int, Value] = {}
        self._row: Value = const(0)

    def row(self, row: Value) -> None:
        """Emit all phases of a row."""
        self._row, self._narrow = row, {}
        self.accesses.begin(row)
        self._compute_narrow(0)
        chunks = [self._chunk(i) for i in range(self._vectors)]
        for phase in range(self._phases.count):
            reduced = [i for i, at in enumerate(self._phases.phase)
                       if at == phase and self._is_reduction(i)]  # fmt: skip
            sums = [self._floats.number(NEUTRAL[self._combine(i)])
                    for i in reduced for _ in range(self._together)]  # fmt: skip
            if reduced or self._stays(phase) or self._written(phase):
                sums = self._all_columns(phase, chunks, reduced, sums)
            for place, number in enumerate(reduced):
                parts = sums[place * self._together : (place + 1) * self._together]
                self._narrow[number] = self._joined(self._combine(number), parts)
            self._compute_narrow(phase + 1)
        for place, target in enumerate(self.program.targets):
            if not target.is_wide:
                self.accesses.store_one(place, row, self._narrow[target.value])

    @property
    def _together(self) -> int:
        """Vectors per turn, each with its own sums."""
        return min(TOGETHER * LANES // self._lanes, self._vectors)

    @property
    def _vectors(self) -> int:
        """Vectors of a row; the last may be partial."""
        return self._whole + bool(self._rest)

    def _is_reduction(self, number: int) -> bool:
        return self.program.operations[number].name in REDUCTIONS

    def _stays(self, phase: int) -> list[int]:
        """Return the values of a phase that a later one needs."""
        return sorted(one for one in self._phases.kept if self._phases.phase[one] == phase)

    def _written(self, phase: int) -> list[int]:
        """Return the wide targets that are first known in a phase."""
        return [place for place, target in enumerate(self.program.targets)
                if target.is_wide and phase
                == self._phases.phase[target.value] + self._is_reduction(target.value)]  # fmt: skip

    def _all_columns(
        self, phase: int, chunks: list[_Chunk], reduced: list[int], sums: list[Value]
    ) -> list[Value]:
        if not self._is_short:
            return self._looped(phase, reduced, sums)
        for place, chunk in enumerate(chunks):
            sums = self._in_phase(phase, chunk, reduced, sums, place % self._together)
        return sums

    def _places(self) -> dict[int, Value]:
        """Return stack slots of values for later phases."""
        size = 4 * _rounded(self.program.columns, self._lanes)
        line = ir.ArrayType(ir.IntType(8), size)
        return {number: self._builder.ptrtoint(self._builder.alloca(line))
                for number in sorted(self._phases.kept)}  # fmt: skip

    def _chunk(self, number: int) -> _Chunk:
        return _Chunk(const(number * self._lanes), self._mask if number == self._whole else None)

    def _looped(self, phase: int, reduced: list[int], sums: list[Value]) -> list[Value]:
        """Emit a phase of a long row: turns of several vectors, and the rest."""
        together, lanes = self._together, self._lanes
        turns = self._whole // together
        if turns:
            loop = CountedLoop(self._builder, sums, "columns")
            sums = loop.carried
            for place in range(together):
                column = self._builder.add(loop.index, const(place * lanes))
                sums = self._in_phase(phase, _Chunk(column, None), reduced, sums, place)
            sums = loop.close(sums, const(turns * together * lanes), together * lanes)
        for number in range(turns * together, self._vectors):
            place = number % together
            sums = self._in_phase(phase, self._chunk(number), reduced, sums, place)
        return sums

    def _in_phase(
        self, phase: int, chunk: _Chunk, reduced: list[int], sums: list[Value], place: int
    ) -> list[Value]:
        """Emit a phase for some columns; return the updated sums."""
        sums, each = list(sums), len(sums) // max(1, len(reduced))
        for i, number in enumerate(reduced):
            combine = self._combine(number)
            value = self._value(self.program.operations[number].of[0], chunk)
            if chunk.mask is not None:
                neutral = self._floats.number(NEUTRAL[combine])
                value = self._builder.select(chunk.mask, value, neutral)
            at = i * each + place
            sums[at] = self._combined(combine, sums[at], value)
        for number in self._stays(phase):
            value = self._value(number, chunk)
            if not self._is_short:
                self.v.store(value, self.v.offset(self._kept[number], chunk.column))
        for target in self._written(phase):
            value = self._value(self.program.targets[target].value, chunk)
            self.accesses.store(target, self._row, chunk.column, value, chunk.mask)
        return sums

    def _value(self, number: int, chunk: _Chunk) -> Value:
        """Return a value for some columns: known, on the stack, or computed."""
        if not self._phases.is_wide[number]:
            return self._narrow[number]
        if number not in chunk.values:
            chunk.values[number] = self._found(number, chunk)
        return chunk.values[number]

    def _found(self, number: int, chunk: _Chunk) -> Value:
        operation = self.program.operations[number]
        if operation.name == READ:
            return self.accesses.load(int(operation.number), chunk.column, chunk.mask)
        return self._applied(operation, number, lambda one: self._operand(one, number, chunk))

    def _operand(self, number: int, user: int, chunk: _Chunk) -> Value:
        """Return an operand, from the stack if an earlier phase computed it."""
        is_early = self._phases.phase[number] < self._phases.phase[user]
        if is_early and number in self._kept and number not in chunk.values:
            chunk.values[number] = self.v.load(self.v.offset(self._kept[number], chunk.column))
        return self._value(number, chunk)

    def _compute_narrow(self, phase: int) -> None:
        """Compute the values of a row that are known before a phase."""
        for number, operation in enumerate(self.program.operations):
            if self._phases.is_wide[number] or number in self._narrow:
                continue
            if operation.name in (*REDUCTIONS, COMPARE) or self._phases.phase[number] > phase:
                continue
            if operation.name == NUMBER:
                self._narrow[number] = self._floats.number(operation.number)
            elif operation.name == READ:
                self._narrow[number] = self.accesses.load_one(int(operation.number))
            else:
                self._narrow[number] = self._applied(operation, number, self._narrow.__getitem__)

    def _applied(
        self, operation: Operation, number: int, value_of: Callable[[int], Value]
    ) -> Value:
        floats = self._floats
        if operation.name == SELECT:
            x, y, then, otherwise = map(value_of, operands(self.program, number))
            predicate = int(self.program.operations[operation.of[0]].number)
            return self._builder.select(floats.compare(predicate, x, y), then, otherwise)
        of = tuple(map(value_of, operation.of))
        if operation.name in FUNCTIONS:
            return FUNCTIONS[operation.name](floats, *of)
        return getattr(floats, operation.name.replace(" ", "_"))(*of)

    def _combine(self, number: int) -> str:
        return REDUCTIONS[self.program.operations[number].name]

    def _combined(self, combine: str, x: Value, y: Value) -> Value:
        made: Value = getattr(self._floats, "add" if combine == "sum" else combine)(x, y)
        return made

    def _joined(self, combine: str, parts: list[Value]) -> Value:
        """Reduce vectors to one value in all lanes."""
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=False)
            left = parts[-1:] if len(parts) % 2 else []
            parts = [self._combined(combine, x, y) for x, y in pairs] + left
        (value,) = parts
        step = self._lanes // 2
        while step:
            order = ir.Constant(
                ir.VectorType(ir.IntType(32), self._lanes), [i ^ step for i in range(self._lanes)]
            )
            other = self._builder.shuffle_vector(value, value, order)
            value = self._combined(combine, value, other)
            step //= 2
        return value
