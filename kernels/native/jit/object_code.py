"""Modules compiled to object code for this machine, and kept in the cache folder for others.

Packs and inner products get the passes of level 3 with vectorised loops, as Numba gives them to the
module that users export, but once, without the cheaper round for reference counts. The other
micro-kernels get no passes: LLVM's code generator makes the same inner loops of them as after
level 3, but for how they count their trips. Macro-kernels get the passes of level 1 that work on
one function; all of level 1 makes them no faster.
"""

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import llvmlite.binding as llvm
from llvmlite import ir

from tilewise.kernels.system.files import cache_dir, keep, kept
from tilewise.kernels.system.toolchain import identity

MOST_BYTES = 256 << 20  # of kept objects; the ones used longest ago go first
_INTRINSIC = "llvm."

Passes = Literal["level 3", "level 1 by function", "none"]
"""LLVM's own for level 3 with vectorised loops; those for level 1 that work on one function; none
for code whose vectors and loops are final."""


@dataclass(frozen=True)
class ObjectCode:
    """An object file.

    Attributes:
        functions: names of those that can be called, in the order of their emission.
        code: the file.
        calls: names of those that it calls and does not have.
    """

    functions: tuple[str, ...]
    code: bytes
    calls: tuple[str, ...] = ()


def compile_module(
    module: ir.Module, functions: Sequence[ir.Function], passes: Passes = "level 3"
) -> ObjectCode:
    """Optimise `module` and emit it for this machine, with `functions` to be found by name.

    No other module has these names, because an engine holds several modules. Whatever else the
    module defines is private.
    """
    machine = _compiling_machine()
    for function in functions:
        function.linkage = "external"
    module.triple = llvm.get_process_triple()
    # Without a layout the passes assume less alignment than the machine has.
    module.data_layout = str(machine.target_data)
    text = str(module)
    parsed = llvm.parse_assembly(text)
    optimise(parsed, machine, passes)
    mark = hashlib.sha256(f"{passes} {text}".encode()).hexdigest()[:16]
    names = tuple(f"{function.name}_{mark}" for function in functions)
    for function, name in zip(functions, names, strict=True):
        parsed.get_function(function.name).name = name
    calls = []
    for other in parsed.functions:
        if other.is_declaration:
            calls += [] if other.name.startswith(_INTRINSIC) else [other.name]
        elif other.name not in names:
            other.linkage = "private"  # an engine finds even local symbols by their names
    return ObjectCode(names, bytes(machine.emit_object(parsed)), tuple(calls))


def optimise(parsed: llvm.ModuleRef, machine: llvm.TargetMachine, passes: Passes) -> None:
    """Run LLVM's passes over a module."""
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


@functools.lru_cache(maxsize=1)
def features() -> str:
    """Return what this processor can do, by LLVM's names."""
    return str(llvm.get_host_cpu_features().flatten())


@functools.lru_cache(maxsize=1)
def _compiling_machine() -> Any:
    """Return the machine that compiles everything; making one takes a while."""
    return new_machine()


def new_machine() -> Any:
    """Return a new machine each time: an engine owns, and in the end frees, its machine."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    is_x86 = llvm.get_process_triple().startswith(("x86_64", "i686"))
    return llvm.Target.from_default_triple().create_target_machine(
        opt=3,
        cpu=llvm.get_host_cpu_name(),
        features=features(),
        reloc="static" if is_x86 else "default",
        codemodel="jitdefault",
        jit=True,
    )


def object_code(
    name: str, emit: Callable[[ir.Module], Sequence[ir.Function]], passes: Passes
) -> ObjectCode:
    """Return the object kept under `name`; where none is, make it of what `emit` adds."""
    made = kept_object(name)
    if made is None:
        module = ir.Module("object")
        made = compile_module(module, emit(module), passes)
        keep_object(name, made)
    return made


def kept_object(name: str) -> ObjectCode | None:
    """Return the object kept under `name`; None when there is none, or it is damaged."""
    body = kept(_path(name))
    if body is None:
        return None
    functions, calls, code = body.split(b"\n", maxsplit=2)
    return ObjectCode(_names(functions), code, _names(calls))


def _names(line: bytes) -> tuple[str, ...]:
    return tuple(line.decode().split(",")) if line else ()


def keep_object(name: str, made: ObjectCode) -> None:
    """Keep an object for other processes; a full or read-only folder keeps nothing."""
    lines = (",".join(names).encode() for names in (made.functions, made.calls))
    keep(_path(name), b"\n".join((*lines, made.code)), MOST_BYTES)


def _path(name: str) -> Path:
    digest = hashlib.sha256(f"{_maker()} {name}".encode()).hexdigest()[:32]
    return cache_dir() / "objects" / f"{digest}.o"


@functools.lru_cache(maxsize=1)
def _maker() -> str:
    """Return what decides the code besides the spec: the toolchain and the processor."""
    return f"{identity()} {llvm.get_host_cpu_name()} {features()}"
