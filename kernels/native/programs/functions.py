"""The functions of a program, as one LLVM module.

`NAME_run` does all steps on one thread. `NAME_steps` does one thread's part of a range of steps,
with a barrier after each, and `NAME_part` that of all; `NAME_share` is `NAME_steps` of the words
at an address, for a thread pool (`tilewise.kernels.native.threads.pool`), which uses `NAME_help`
and `NAME_tell` as well.
"""

from collections.abc import Mapping

from llvmlite import ir

from tilewise.kernels.native.ir.vectors import I64, VOID, Value, const
from tilewise.kernels.native.language.compiler import emit_function, emit_macro_kernel, symbol
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

_CALLED = "wait_for_all", "serve", "publish"
_ALONE = """@njit
def {name}_run(activations, weights):
    for call in range(calls):
        call_address(the_call, activations, weights, call)

@njit
def {name}_steps(activations, weights, part, first, end):
    for step in range(first, end):
        call_address(the_call, activations, weights, step * threads + part)
        if threads > 1:
            wait_for_all(activations + barrier, threads)
"""
_TOGETHER = """@njit
def {name}_part(activations, weights, part):
    call_address(the_steps, activations, weights, part, 0, steps)

@njit
def {name}_share(at):
    call_address(the_steps, word(at, 0), word(at, 1), word(at, 2), word(at, 3), word(at, 4))

@njit
def {name}_help(board, helper, seen, spins):
    return serve(board, helper, seen, spins)

@njit
def {name}_tell(board, generation):
    publish(board, generation)
"""


def functions_text(
    program: NetworkProgram, symbols: Mapping[Kernel | Parametric, str], features: tuple[str, ...]
) -> str:
    """Return the module's IR."""
    module = ir.Module(program.name)
    short = program.name.removeprefix(symbol(""))
    steps, threads = len(program.steps), program.threads
    numbers = {"calls": steps * threads, "steps": steps, "threads": threads,
               "barrier": program.barrier.offset}  # fmt: skip
    known = {name: const(number) for name, number in numbers.items()}
    known["the_call"] = _Writer(module, program, symbols).call().ptrtoint(I64)
    _, made = emit_macro_kernel(module, _ALONE.format(name=short), known)
    if threads > 1:
        known["the_steps"] = made.ptrtoint(I64)
        emit_macro_kernel(module, _TOGETHER.format(name=short), known)
    for called in _CALLED:
        emit_function(module, called).linkage = "internal"
    return str(module) + supported_text(program.name, features)


class _Writer:
    """Writes calls."""

    def __init__(
        self, module: ir.Module, program: NetworkProgram, symbols: Mapping[Kernel | Parametric, str]
    ) -> None:
        self._module, self._program, self._symbols = module, program, symbols
        self._tables: dict[Table, Value] = {}
        rows = [
            row for step in program.steps if not isinstance(step.does, Kernel) for row in step.rows
        ]
        self._most_words = max(map(len, rows), default=1)

    def call(self) -> ir.Function:
        """Add `void NAME_call(activations, weights, call)`: a thread's part of a step.

        Calls are numbered by step, then by thread; a thread without a part does nothing.
        """
        kind = ir.FunctionType(VOID, [I64] * 3)
        made = ir.Function(self._module, kind, f"{self._program.name}_call")
        made.linkage = "internal"
        entry, end = (made.append_basic_block(name) for name in ("entry", "end"))
        ir.IRBuilder(end).ret_void()
        builder = ir.IRBuilder(entry)
        places = dict(zip(("activations", "weights"), made.args[:2], strict=True))
        words = builder.alloca(ir.ArrayType(I64, self._most_words))
        switch = builder.switch(made.args[2], end)
        for number, step in enumerate(self._program.steps):
            for part, row in enumerate(step.rows):
                block = made.append_basic_block("call")
                inside = ir.IRBuilder(block)
                self._call(inside, places, words, step.does, row)
                inside.branch(end)
                switch.add_case(const(number * self._program.threads + part), block)
        return made

    def _call(
        self, builder: ir.IRBuilder, places: Mapping[str, Value], words: Value,
        does: Kernel | Parametric, row: Row,
    ) -> None:  # fmt: skip
        values = [self._value(builder, places, word) for word in row]
        if not isinstance(does, Kernel):
            for number, value in enumerate(values):
                at = builder.gep(words, [const(0), const(number)])
                builder.store(value, at)
            values = [builder.ptrtoint(words, I64)]
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
