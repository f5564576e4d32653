"""The public functions of a program, as one LLVM module.

`NAME_run` does all steps on one thread. `NAME_part` does one thread's part, with a barrier after
each step. `NAME_help` is the loop of a helper thread.
"""

from collections.abc import Mapping, Sequence

from llvmlite import ir

from tilewise.kernels.native.ir.vectors import I64, VOID, Value, const
from tilewise.kernels.native.language.compiler import emit_driver, emit_function, symbol
from tilewise.kernels.native.objects.features import supported_text
from tilewise.kernels.native.programs.steps import (
    At,
    Kernel,
    NetworkProgram,
    Parametric,
    Row,
    Table,
    Word,
)

_WAIT = "wait_for_all"
_HELP = """@njit
def {name}(board, seen, spins, activations, weights, part):
    left = spins
    while left > 0:
        now = read_shared(board, 0)
        if now == seen:
            pause()
            left -= 1
            continue
        seen = now
        left = spins
        call_address(the_part, activations, weights, part)
    return seen
"""
_TELL = """@njit
def {name}(board, generation):
    write_shared(board, 0, generation)
"""


def functions_text(
    program: NetworkProgram, symbols: Mapping[Kernel | Parametric, str], features: tuple[str, ...]
) -> str:
    """Return the module's IR."""
    module = ir.Module(program.name)
    writer = _Writer(module, program, symbols)
    threads = list(range(program.threads))
    writer.function("run", threads, meets=False)
    if len(threads) > 1:
        chosen = writer.choice([writer.function(f"part{i}", [i], meets=True) for i in threads])
        short = program.name.removeprefix(symbol(""))
        known = {"the_part": chosen.ptrtoint(I64)}
        emit_driver(module, _HELP.format(name=f"{short}_help"), known)
        emit_driver(module, _TELL.format(name=f"{short}_tell"), known)
        emit_function(module, _WAIT).linkage = "internal"
    return str(module) + supported_text(program.name, features)


class _Writer:
    """Writes straight-line calls."""

    def __init__(
        self, module: ir.Module, program: NetworkProgram, symbols: Mapping[Kernel | Parametric, str]
    ) -> None:
        self._module, self._program, self._symbols = module, program, symbols
        self._tables: dict[Table, Value] = {}
        rows = [
            row for step in program.steps if not isinstance(step.does, Kernel) for row in step.rows
        ]
        self._most_words = max(map(len, rows), default=1)

    def function(self, ending: str, threads: Sequence[int], *, meets: bool) -> ir.Function:
        """Add `void NAME_ending(activations, weights)`: the steps of some threads.

        With `meets` a barrier of all threads follows each step.
        """
        kind = ir.FunctionType(VOID, [I64, I64])
        made = ir.Function(self._module, kind, f"{self._program.name}_{ending}")
        made.linkage = "internal" if meets else "external"
        builder = ir.IRBuilder(made.append_basic_block("entry"))
        places = dict(zip(("activations", "weights"), made.args, strict=True))
        room = builder.alloca(ir.ArrayType(I64, self._most_words))
        for step in self._program.steps:
            for thread in threads:
                if thread < len(step.rows):
                    self._call(builder, places, room, step.does, step.rows[thread])
            if meets:
                barrier = self._value(builder, places, self._program.barrier)
                builder.call(
                    self._declared(symbol(_WAIT), 2), [barrier, const(self._program.threads)]
                )
        builder.ret_void()
        return made

    def choice(self, parts: Sequence[ir.Function]) -> ir.Function:
        """Add `void NAME_part(activations, weights, part)`, which ignores unknown parts."""
        kind = ir.FunctionType(VOID, [I64] * 3)
        made = ir.Function(self._module, kind, f"{self._program.name}_part")
        entry, end = (made.append_basic_block(name) for name in ("entry", "end"))
        ir.IRBuilder(end).ret_void()
        switch = ir.IRBuilder(entry).switch(made.args[2], end)
        for number, part in enumerate(parts):
            block = made.append_basic_block(f"part{number}")
            builder = ir.IRBuilder(block)
            builder.call(part, made.args[:2])
            builder.ret_void()
            switch.add_case(const(number), block)
        return made

    def _call(
        self, builder: ir.IRBuilder, places: Mapping[str, Value], room: Value,
        does: Kernel | Parametric, row: Row,
    ) -> None:  # fmt: skip
        values = [self._value(builder, places, word) for word in row]
        if not isinstance(does, Kernel):
            for number, value in enumerate(values):
                at = builder.gep(room, [const(0), const(number)])
                builder.store(value, at)
            values = [builder.ptrtoint(room, I64)]
        builder.call(self._declared(self._symbols[does], len(values)), values)

    def _value(self, builder: ir.IRBuilder, places: Mapping[str, Value], word: Word) -> Value:
        if isinstance(word, At):
            return builder.add(places[word.area], const(word.offset))
        if isinstance(word, Table):
            return builder.ptrtoint(self._table(word), I64)
        return const(word)

    def _table(self, table: Table) -> Value:
        if table not in self._tables:
            kind = ir.ArrayType(I64, len(table.words))
            name = f"{self._program.name}_table{len(self._tables)}"
            made = ir.GlobalVariable(self._module, kind, name)
            made.linkage, made.global_constant = "internal", True
            made.initializer = ir.Constant(kind, list(table.words))
            self._tables[table] = made
        return self._tables[table]

    def _declared(self, name: str, arguments: int) -> ir.Function:
        known = self._module.globals.get(name)
        kind = ir.FunctionType(VOID, [I64] * arguments)
        return known if known is not None else ir.Function(self._module, kind, name)
