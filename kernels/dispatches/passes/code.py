"""A pass over rows as bitcode: a function that C may call, of addresses and a part.

    int NAME(const void *in0, ..., void *out);
    int NAME_part(const void *in0, ..., void *out, int64_t part);

The second one is there where a pass has several parts, in place of the first. Parts are runs of
rows of about the same length.
"""

import hashlib
import re
from dataclasses import dataclass, replace

import llvmlite.binding as llvm
from llvmlite import ir

from tilewise.kernels.dispatches.passes.row_pass import RowPass, check
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.vectors import I64, Value, const
from tilewise.kernels.native.objects.features import attributes, used_features
from tilewise.kernels.native.objects.module import TRIPLE, machine
from tilewise.kernels.native.passes.rows.emit import emit
from tilewise.kernels.target.model import Target

PREFIX = "tilewise_rows_"
_ROWS = "tilewise_pass"
_DEFINITION = re.compile(r"^(define [^\n]*?) \{$", re.MULTILINE)
_WORDS_BEFORE = 2
"""That nothing reads; first and end of the rows follow."""


@dataclass(frozen=True)
class CompiledPass:
    """A pass with its code.

    Attributes:
        found: the ops that it stands for.
        name: the function's symbol.
        bitcode: of it.
        features: what it needs of an x86-64 processor, by LLVM's names.
        parts: into which its rows are cut.
    """

    found: RowPass
    name: str
    bitcode: bytes
    features: tuple[str, ...]
    parts: int

    @property
    def function(self) -> str:
        """The symbol of what is called."""
        return f"{self.name}_part" if self.parts > 1 else self.name


def compiled_pass(found: RowPass, target: Target) -> CompiledPass:
    """The code of a pass, with a part for each of the target's threads.

    Raises:
        LoweringError: its rows are too long, this machine is no x86-64, or LLVM refuses it.
    """
    check(found)
    if not llvm.get_process_triple().startswith("x86_64"):
        raise LoweringError("passes are made for x86-64 on x86-64")
    parts = min(target.threads, found.rows)
    features = used_features(target.features, "")
    told = f"{found.rows} {parts} {features} {found.program} "
    told += str([(one.operand, one.table) for one in found.readings])
    told += found.pattern.text  # another spelling is another function, even of the same code
    mark = hashlib.sha256(told.encode()).hexdigest()[:12]
    name = f"{PREFIX}{found.rows}x{found.columns}_{mark}"
    made = CompiledPass(found, name, b"", features, parts)
    try:
        return replace(made, bitcode=_bitcode(made, has_fma=target.has_fma))
    except RuntimeError as error:  # LLVM's own
        raise LoweringError(f"compiling {found.label} failed: {error}") from error


def _bitcode(made: CompiledPass, *, has_fma: bool) -> bytes:
    module = ir.Module(made.name)
    rows = emit(module, made.found.program, has_fma=has_fma, name=_ROWS)
    rows.linkage = "internal"
    _add_entry(module, made, rows)
    said = attributes(made.features)
    plain = str(llvm.parse_assembly(str(module)))
    parsed = llvm.parse_assembly(_DEFINITION.sub(lambda one: f"{one[1]} {said} {{", plain))
    parsed.triple = TRIPLE
    parsed.data_layout = str(machine(made.features).target_data)
    parsed.name = made.name
    parsed.verify()
    return bytes(parsed.as_bitcode())


def _add_entry(module: ir.Module, made: CompiledPass, rows: ir.Function) -> None:
    """Add the function that is called: it writes the parameters of the pass, and calls that."""
    found = made.found
    count = len(found.pattern.operands)
    given = [I64] * (count + 1 + (made.parts > 1))
    function = ir.Function(module, ir.FunctionType(I64, given), made.function)
    builder = Builder(function.append_basic_block("entry"))
    first, end = const(0), const(found.rows)
    if made.parts > 1:
        part = function.args[-1]
        first, end = (
            builder.sdiv(builder.mul(at, const(found.rows)), const(made.parts))
            for at in (part, builder.add(part, const(1)))
        )
    words = [const(0)] * _WORDS_BEFORE + [first, end]
    for at, one in enumerate(found.readings):
        table = _table(module, at, one.table) if one.table else const(0)
        words += [function.args[one.operand], table]
    words.append(function.args[count])
    held = builder.ptrtoint(builder.alloca(ir.ArrayType(I64, len(words))))
    for at, word in enumerate(words):
        place = builder.inttoptr(builder.add(held, const(8 * at)), I64.as_pointer())
        builder.store(word, place)
    builder.call(rows, [held])
    builder.ret(const(0))


def _table(module: ir.Module, number: int, offsets: tuple[int, ...]) -> Value:
    """The address of a table of where rows begin."""
    kind = ir.ArrayType(I64, len(offsets))
    table = ir.GlobalVariable(module, kind, f"{_ROWS}_table{number}")
    table.linkage, table.global_constant = "internal", True
    table.initializer = ir.Constant(kind, offsets)
    return table.ptrtoint(I64)
