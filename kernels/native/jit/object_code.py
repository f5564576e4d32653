"""Modules into object code, for this machine.

Packs and inner products get Numba's own passes for the module that users export (level 3, with
vectorised loops), run once and not after a cheaper round that is for reference counts. The other
micro-kernels are written as they shall be, and get none: LLVM's code generator makes the inner
loops of them that it makes after level 3, but for how they count their turns. Drivers get those
of level 1 that work on one function, which leave them as fast as all of it does.
"""

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import llvmlite.binding as llvm
from llvmlite import ir

_INTRINSIC = "llvm."

Passes = Literal["level 3", "level 1 by function", "none"]
"""LLVM's own for level 3 with vectorised loops; those for level 1 that work on one function;
or none, for code whose vectors and loops are as they shall be."""


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
    """Run passes of LLVM's over a module."""
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
    """What this processor can do, by LLVM's names."""
    return str(llvm.get_host_cpu_features().flatten())


@functools.lru_cache(maxsize=1)
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@functools.lru_cache(maxsize=1)
def _compiling_machine() -> Any:
    """One for all that is compiled: it works out once what the processor can do."""
    return new_machine()


def new_machine() -> Any:
    """A new one each time: an engine owns, and in the end frees, the machine that it is given."""
    _initialize()
    is_x86 = llvm.get_process_triple().startswith(("x86_64", "i686"))
    return llvm.Target.from_default_triple().create_target_machine(
        opt=3,
        cpu=llvm.get_host_cpu_name(),
        features=features(),
        reloc="static" if is_x86 else "default",
        codemodel="jitdefault",
        jit=True,
    )
