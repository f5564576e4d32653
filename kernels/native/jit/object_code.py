"""Functions as object code: made by LLVM once, kept in the cache folder, loaded at once.

So a process that compiles can do so for another that times. Packs and inner products get
Numba's own passes for the module that users export (level 3, with vectorised loops), run once
and not after a cheaper round that is for reference counts. The other micro-kernels are written
as they shall be, and get none: LLVM's code generator makes the inner loops of them that it makes
after level 3, but for how they count their turns. Drivers get those of level 1 that work on
one function, which leave them as fast as all of it does.
"""

import functools
import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import llvmlite.binding as llvm
from llvmlite import ir

from kernels.system.cache_folder import cache_dir
from kernels.system.toolchain import identity

OBJECTS_OF_AN_ENGINE = 16
MOST_BYTES = 256 << 20  # of kept objects; the ones used longest ago go first
_DIGEST = 32

Passes = Literal["level 3", "level 1 by function", "none"]
"""LLVM's own for level 3 with vectorised loops; those for level 1 that work on one function;
or none, for code whose vectors and loops are as they shall be."""


@dataclass(frozen=True)
class ObjectCode:
    """An object file.

    Attributes:
        functions: names of those that can be called, in the order of their emission.
        code: the file.
    """

    functions: tuple[str, ...]
    code: bytes


class Loaded:
    """Functions of an object file in this process.

    Attributes:
        addresses: of the functions, in their order; they hold while this object lives.
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
    """Engines of LLVM's, each for a few objects: the first takes 1.3 ms, any other 0.05.

    An engine that has its objects, and the memory of all of them, goes with the last.
    """

    def __init__(self) -> None:
        self._engine: Any = None
        self._given = 0

    def give(self) -> Any:
        """An engine for one more object."""
        if self._given % OBJECTS_OF_AN_ENGINE == 0:
            self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
        self._given += 1
        return self._engine


_engines, _loading = _Engines(), Lock()


def compile_module(
    module: ir.Module, functions: Sequence[ir.Function], passes: Passes = "level 3"
) -> ObjectCode:
    """Optimise `module` and emit it for this machine, with `functions` to be found by name.

    The names tell them from those of any other module, which an engine may hold beside it;
    what else the module defines is its own.
    """
    machine = _compiling_machine()
    for function in functions:
        function.linkage = "external"
    module.triple = llvm.get_process_triple()
    # Without it the passes assume less alignment than the machine has.
    module.data_layout = str(machine.target_data)
    text = str(module)
    parsed = llvm.parse_assembly(text)
    _optimise(parsed, machine, passes)
    mark = hashlib.sha256(f"{passes} {text}".encode()).hexdigest()[:16]
    names = tuple(f"{function.name}_{mark}" for function in functions)
    for function, name in zip(functions, names, strict=True):
        parsed.get_function(function.name).name = name
    for other in parsed.functions:
        if not other.is_declaration and other.name not in names:
            other.linkage = "private"  # an engine finds even local symbols by their names
    return ObjectCode(names, bytes(machine.emit_object(parsed)))


def _optimise(parsed: llvm.ModuleRef, machine: llvm.TargetMachine, passes: Passes) -> None:
    if passes == "none":
        return
    is_thorough = passes == "level 3"
    options = llvm.create_pipeline_tuning_options(speed_level=3 if is_thorough else 1)
    options.loop_vectorization = options.loop_unrolling = is_thorough
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    if is_thorough:
        builder.getModulePassManager().run(parsed, builder)
        return
    manager = builder.getFunctionPassManager()
    for function in parsed.functions:
        if not function.is_declaration:
            manager.run(function, builder)


def object_code(
    name: str, emit: Callable[[ir.Module], Sequence[ir.Function]], passes: Passes
) -> ObjectCode:
    """The object kept under `name`; where none is, made of what `emit` adds to a module."""
    made = kept_object(name)
    if made is None:
        module = ir.Module("object")
        made = compile_module(module, emit(module), passes)
        keep_object(name, made)
    return made


def kept_object(name: str) -> ObjectCode | None:
    """The object kept under `name`; None when there is none, or it is not whole."""
    path = _path(name)
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, body = content[:_DIGEST], content[_DIGEST:]
    if hashlib.sha256(body).digest() != digest:
        return None
    with suppress(OSError):
        os.utime(path)
    names, _, code = body.partition(b"\n")
    return ObjectCode(tuple(names.decode().split(",")), code)


def keep_object(name: str, made: ObjectCode) -> None:
    """Keep an object for other processes; a full or read-only folder keeps nothing."""
    path, body = _path(name), ",".join(made.functions).encode() + b"\n" + made.code
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(hashlib.sha256(body).digest() + body)
        draft.replace(path)
        _drop_oldest(path.parent)


def _path(name: str) -> Path:
    digest = hashlib.sha256(f"{_maker()} {name}".encode()).hexdigest()[:32]
    return cache_dir() / "objects" / f"{digest}.o"


@functools.lru_cache(maxsize=1)
def _maker() -> str:
    """Whatever decides the code beside the spec: the toolchain and the processor."""
    return f"{identity()} {llvm.get_host_cpu_name()} {_features()}"


_COUNT_EVERY = 64
_kept = count(1)


def _drop_oldest(folder: Path) -> None:
    """Hold the folder to `MOST_BYTES`, looked at now and then."""
    if next(_kept) % _COUNT_EVERY:
        return
    found = []
    for path in folder.glob("*.o"):
        with suppress(OSError):  # another process may drop it first
            status = path.stat()
            found.append((status.st_mtime, status.st_size, path))
    excess = sum(size for _, size, _ in found) - MOST_BYTES
    for _, size, path in sorted(found):
        if excess <= 0:
            return
        with suppress(OSError):
            path.unlink()
        excess -= size


@functools.lru_cache(maxsize=1)
def _features() -> str:
    return str(llvm.get_host_cpu_features().flatten())


@functools.lru_cache(maxsize=1)
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@functools.lru_cache(maxsize=1)
def _compiling_machine() -> Any:
    """One for all that is compiled: it works out once what the processor can do."""
    return _machine()


def _machine() -> Any:
    """A new one each time: an engine owns, and in the end frees, the machine that it is given."""
    _initialize()
    is_x86 = llvm.get_process_triple().startswith(("x86_64", "i686"))
    return llvm.Target.from_default_triple().create_target_machine(
        opt=3,
        cpu=llvm.get_host_cpu_name(),
        features=_features(),
        reloc="static" if is_x86 else "default",
        codemodel="jitdefault",
        jit=True,
    )
