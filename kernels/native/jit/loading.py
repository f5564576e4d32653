"""Compiled functions in this process: micro-kernels, packs and macro-kernels, as addresses.

Each function of a micro-kernel is compiled alone, when a schedule first needs it, and kept for
other processes: a micro-kernel for every schedule with its register tile and unroll factor (one
that is called seldom: with any factor), a pack for every register tile of as many columns. A
candidate that differs from earlier ones in its blocks alone compiles nothing, unless they make a
seldom micro-kernel a frequent one.
"""

import ctypes
import functools
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.jit.object_code import ObjectCode, Passes, new_machine, object_code
from tilewise.kernels.native.language.compiler import (
    called_name,
    emit_function,
    emit_macro_kernel,
    symbol,
)
from tilewise.kernels.native.microkernels.abi import FUNCTIONS
from tilewise.kernels.native.microkernels.microkernel import (
    ANY_USE,
    MicroKernel,
    Piece,
    Use,
    pieces_of,
)

OBJECTS_OF_AN_ENGINE = 16
MOST_FUNCTIONS, MOST_MACRO_KERNELS = 128, 64  # that a process keeps loaded besides those in use
Entry = Callable[[int], None]
_MACRO_KERNEL_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_int64)  # calls without Python's lock
_MACRO_KERNEL_PASSES: Passes = "level 1 by function"


class Loaded:
    """Functions of an object file in this process.

    Attributes:
        addresses: of the functions, in their order; valid while this object lives.
    """

    def __init__(self, made: ObjectCode) -> None:
        with _loading:
            self._engine = engine = _engines.give()
            engine.add_object_file(llvm.ObjectFileRef.from_data(made.code))
            engine.finalize_object()
            self.addresses = [int(engine.get_function_address(f)) for f in made.functions]
        if not all(self.addresses):
            raise RuntimeError(f"not all of {', '.join(made.functions)} are in the object code")


class _Engines:
    """LLVM's engines, each for a few objects: the first takes 1.3 ms, any other 0.05.

    An engine, and the memory of its objects, is freed with the last of them.
    """

    def __init__(self) -> None:
        self._engine: Any = None
        self._given = 0

    def give(self) -> Any:
        """Return an engine for one more object."""
        if self._given % OBJECTS_OF_AN_ENGINE == 0:
            self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), new_machine())
        self._given += 1
        return self._engine


_engines, _loading = _Engines(), Lock()


@dataclass(frozen=True)
class CompiledKernels:
    """Addresses of a micro-kernel and of its packs; valid while this object lives.

    Attributes:
        addresses: by the names in `FUNCTIONS`; 0 for what is not needed.
    """

    addresses: dict[str, int]
    _owners: tuple[Loaded, ...] = field(repr=False)


def compile_kernels(
    kernel: MicroKernel, needed: Collection[str] = FUNCTIONS, use: Use = ANY_USE
) -> CompiledKernels:
    """Compile a micro-kernel and its packs.

    Args:
        kernel: the micro-kernel.
        needed: some of `FUNCTIONS`; those that the kernel does not have are ignored.
        use: how its nest uses it.

    Raises:
        LoweringError: code generation failed.
    """
    try:
        loaded = {name: load(p) for name, p in pieces_of(kernel, use).items() if name in needed}
    except Exception as error:
        raise LoweringError(f"compiling {kernel.spec} failed: {error}") from error
    addresses = {name: owner.addresses[0] for name, owner in loaded.items()}
    return CompiledKernels(dict.fromkeys(FUNCTIONS, 0) | addresses, tuple(loaded.values()))


@functools.lru_cache(maxsize=MOST_FUNCTIONS)
def load(piece: Piece) -> Loaded:
    """Load a function into this process; compile it unless it is kept."""
    return Loaded(code_of(piece))


def code_of(piece: Piece) -> ObjectCode:
    """Return a function's machine code, and keep it."""
    passes: Passes = "none" if piece.is_as_written else "level 3"
    return object_code(repr(piece), lambda module: [piece.emit(module)], passes)


def emit_all(module: ir.Module, kernel: MicroKernel, use: Use = ANY_USE) -> list[ir.Function]:
    """Add every function of a micro-kernel to `module`, in the order of `pieces`."""
    return [piece.emit(module) for piece in pieces_of(kernel, use).values()]


@dataclass(frozen=True)
class MacroKernel:
    """Compiled functions, each of the address of a macro-kernel's parameters.

    Attributes:
        run: the macro-kernel.
        prepare: packs constant weights before it; None without any.
        entry: the macro-kernel's address, for threads.
    """

    run: Entry
    prepare: Entry | None
    entry: int
    _owner: Loaded = field(repr=False)


@functools.lru_cache(maxsize=MOST_MACRO_KERNELS)
def load_macro_kernel(text: str) -> MacroKernel:
    """Compile a macro-kernel's source, or load it from the cache folder.

    Raises:
        LoweringError: code generation failed.
    """
    try:
        owner = _linked(macro_kernel_code(text))
    except LoweringError:
        raise
    except Exception as error:
        raise LoweringError(f"compiling a macro-kernel failed: {error}") from error
    run, *prepare = owner.addresses
    pack = _MACRO_KERNEL_TYPE(prepare[0]) if prepare else None
    return MacroKernel(_MACRO_KERNEL_TYPE(run), pack, run, owner)


def macro_kernel_code(text: str) -> ObjectCode:
    """Return a macro-kernel's machine code, and keep it."""
    return object_code(text, lambda module: emit_macro_kernel(module, text), _MACRO_KERNEL_PASSES)


@functools.cache
def link(name: str) -> Loaded:
    """Let macro-kernels call a function of their language: it is compiled once, apart from them."""
    key = f"{name} of the language of macro-kernels"
    made = object_code(key, lambda module: [emit_function(module, name)], _MACRO_KERNEL_PASSES)
    owner = _linked(made)
    llvm.add_symbol(symbol(name), owner.addresses[0])
    return owner


def _linked(made: ObjectCode) -> Loaded:
    """Load an object after what it calls of the language."""
    for name in filter(None, map(called_name, made.calls)):
        link(name)
    return Loaded(made)
