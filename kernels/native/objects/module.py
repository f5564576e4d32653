"""Planned kernels as one LLVM module: macro-kernel, micro-kernels and packs, linked by symbols.

Every piece gets the passes that it gets in a search (`tilewise.kernels.native.jit.object_code`);
then they are linked, and everything but what C calls is internal. Sizes are constants of the
macro-kernel, which LLVM folds. Nothing in the module is written to, and all that it calls is in it.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.export.templates import filled
from tilewise.kernels.native.ir.vectors import I64, VOID, Value, const
from tilewise.kernels.native.jit.ir_text import kernel_text
from tilewise.kernels.native.jit.object_code import Passes, optimise
from tilewise.kernels.native.language.compiler import (
    called_name,
    emit_function,
    emit_macro_kernel,
    language,
    symbol,
)
from tilewise.kernels.native.microkernels.microkernel import Piece, pieces_of
from tilewise.kernels.native.objects.entries import (
    COPY,
    TABLE,
    Entries,
    Variant,
    known_sizes,
    macro_kernel_text,
)
from tilewise.kernels.native.objects.features import (
    TEMPLATES,
    attributes,
    supported_text,
    used_features,
)
from tilewise.kernels.native.objects.object_files import Elf
from tilewise.kernels.target.model import Target

TRIPLE = "x86_64-unknown-linux-gnu"
_DEFINITION = re.compile(r"^(define [^\n]*?) \{$", re.MULTILINE)
_MEMORY = {"llvm.memset.p0.i64": "fill.ll", symbol(COPY): f"{COPY}.ll"}
"""Functions of memory, by the names under which modules call them, and their templates."""
_COPY_ARGUMENTS = 3


class ObjectCompiler:
    """Makes the modules of kernels and joins them.

    Args:
        entries: what others see of them.
        variants: the kernels.
        target: the machine that they are for.

    Attributes:
        features: what their code may use of the processor.
    """

    def __init__(self, entries: Entries, variants: Sequence[Variant], target: Target) -> None:
        self.entries, self.variants = entries, variants
        plans = [variant.planned for variant in variants]
        text = "".join(kernel_text(planned.kernel, planned.use).text for planned in plans)
        self.features = used_features(target.features, text)
        self._attributes = attributes(self.features)
        self._machine = machine(self.features)

    def bitcode(self) -> bytes:
        """Return the kernels as one module; what is not called from outside is internal.

        Raises:
            LoweringError: code generation failed.
        """
        pieces = {
            f"{name}{variant.suffix}": self._piece(f"{name}{variant.suffix}", piece)
            for variant in self.variants
            for name, piece in pieces_of(variant.planned.kernel, variant.planned.use).items()
            if name in variant.planned.functions
        }
        whole = self._macro_kernel(pieces)
        for module in pieces.values():
            whole.link_in(module)
        kept = _as_they_are([_piece_symbol(name) for name in pieces])
        whole = self._parsed(_with_memory(str(whole)) + kept)
        if self.entries.has_supported:
            supported = supported_text(self.entries.name, self.features)
            whole.link_in(self._parsed(supported, own=False))
        for function in whole.functions:
            if not function.is_declaration and function.name not in self.entries.functions:
                function.linkage = "internal"
        whole.name = self.entries.name
        whole.verify()
        return bytes(whole.as_bitcode())

    def object_file(self, bitcode: bytes) -> bytes:
        """Return the relocatable object of a module.

        It is made of the bitcode, so that whoever compiles that has the same code; a module that
        was just built has the uses of its values in another order, and compiles differently.

        Raises:
            LoweringError: it would need something that an object on its own has not.
        """
        data = bytes(self._machine.emit_object(llvm.parse_bitcode(bitcode)))
        found = Elf.read(data)
        if found.undefined:
            raise LoweringError(
                f"the object would call {', '.join(found.undefined)}, which a processor with "
                "more extensions does itself; give a target that has them"
            )
        if found.writable_bytes:
            raise LoweringError("the object would have memory of its own, which calls share")
        return data

    def _piece(self, name: str, piece: Piece) -> llvm.ModuleRef:
        """One function of the micro-kernel, under a name of its own."""
        module = ir.Module(name)
        function = piece.emit(module)
        function.linkage = "external"
        parsed = self._optimised(module, "none" if piece.is_as_written else "level 3")
        for other in parsed.functions:
            if not other.is_declaration and other.name != function.name:
                other.linkage = "internal"
        made = parsed.get_function(function.name)
        made.name = _piece_symbol(name)
        made.add_function_attribute("noinline")
        return parsed

    def _macro_kernel(self, pieces: Mapping[str, llvm.ModuleRef]) -> llvm.ModuleRef:
        """What C calls, the macro-kernels, and what both call of the language."""
        module = ir.Module(self.entries.name)
        seen: dict[str, Value] = {}
        for variant in self.variants:
            self._add_macro_kernel(module, variant, pieces)
            seen[variant.macro_kernel] = module.globals[symbol(variant.macro_kernel)].ptrtoint(I64)
            if variant.planned.is_ahead:
                seen[variant.prepare] = module.globals[symbol(variant.prepare)].ptrtoint(I64)
        internal = {symbol(name) for name in seen}
        if self.entries.copies:
            seen[COPY] = _address(module, symbol(COPY), _COPY_ARGUMENTS)
        if self.entries.table:
            seen[TABLE] = _table(module, self.entries.table)
        emit_macro_kernel(module, self.entries.text, seen)
        _add_language(module)
        for name, function in module.globals.items():
            is_own = name in internal or called_name(name) in language()
            if isinstance(function, ir.Function) and is_own:
                function.linkage = "internal"
        return self._optimised(module, "level 3")

    def _add_macro_kernel(
        self, module: ir.Module, variant: Variant, pieces: Mapping[str, llvm.ModuleRef]
    ) -> None:
        """Add a kernel's macro-kernel, and what packs its weights ahead."""
        known = {name: const(size) for name, size in known_sizes(variant).items()}
        for name in variant.planned.functions:
            own = f"{name}{variant.suffix}"
            if own not in pieces:
                continue
            given = len(list(pieces[own].get_function(_piece_symbol(own)).arguments))
            known[name] = _address(module, _piece_symbol(own), given)
        emit_macro_kernel(module, macro_kernel_text(variant), known)

    def _optimised(self, module: ir.Module, passes: Passes) -> llvm.ModuleRef:
        parsed = self._parsed(str(module))
        optimise(parsed, self._machine, passes)
        return parsed

    def _parsed(self, text: str, *, own: bool = True) -> llvm.ModuleRef:
        """LLVM's module of a text, in which every function says what its code may use."""
        parsed = llvm.parse_assembly(text)
        if own:
            marked = _DEFINITION.sub(lambda found: f"{found[1]} {self._attributes} {{", str(parsed))
            parsed = llvm.parse_assembly(marked)
        parsed.triple = TRIPLE
        parsed.data_layout = str(self._machine.target_data)
        return parsed


def _piece_symbol(name: str) -> str:
    return f"{symbol(name)}_piece"


def _as_they_are(names: list[str]) -> str:
    """What keeps passes over the whole module from changing functions for their callers.

    A compiler that takes the bitcode would fold sizes into an inner product, put all its sums off
    to the end, and spill: 9% of a product with a vector. A use that is no call forbids that.
    """
    listed = ", ".join(f"ptr @{name}" for name in names)
    kind = f"[{len(names)} x ptr]"
    return f'\n@llvm.compiler.used = appending global {kind} [{listed}], section "llvm.metadata"\n'


def _with_memory(text: str) -> str:
    """What LLVM would call the C library for, as functions of the module's own."""
    for declared, template in _MEMORY.items():
        kept = [line for line in text.splitlines() if not _declares(line, declared)]
        text = "\n".join(kept) + "\n"
        if f"@{declared}(" in text:
            name = symbol(template.removesuffix(".ll"))
            text = text.replace(f"@{declared}(", f"@{name}(") + filled(TEMPLATES / template)
    return text


def _declares(line: str, name: str) -> bool:
    return line.startswith("declare ") and f"@{name}(" in line


def _address(module: ir.Module, name: str, arguments: int) -> Value:
    """The address of a function of another module."""
    kind = ir.FunctionType(VOID, [I64] * arguments)
    return ir.Function(module, kind, name).ptrtoint(I64)


def _table(module: ir.Module, words: tuple[int, ...]) -> Value:
    """The address of a table of constants."""
    kind = ir.ArrayType(I64, len(words))
    table = ir.GlobalVariable(module, kind, symbol(TABLE))
    table.linkage, table.global_constant = "internal", True
    table.initializer = ir.Constant(kind, words)
    return table.ptrtoint(I64)


def _add_language(module: ir.Module) -> None:
    """Add the functions of the macro-kernels' language that are called, and what they call."""
    while missing := [
        called_name(name)
        for name, function in module.globals.items()
        if isinstance(function, ir.Function)
        and not function.blocks
        and called_name(name) in language()
    ]:
        for name in missing:
            emit_function(module, name)


@functools.lru_cache(maxsize=8)
def machine(features: tuple[str, ...]) -> Any:
    """Return LLVM's machine for position-independent code that uses `features` at most."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # `supported` has lines of assembly
    return llvm.Target.from_triple(TRIPLE).create_target_machine(
        opt=3,
        cpu="x86-64",
        features=",".join(f"+{name}" for name in features),
        reloc="pic",
        codemodel="small",
        jit=False,
    )
