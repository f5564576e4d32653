"""A program's objects: one for each kernel and pass, one for what others call."""

from dataclasses import dataclass

import llvmlite.binding as llvm

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.jit.object_code import optimise
from tilewise.kernels.native.objects.elf import Elf
from tilewise.kernels.native.objects.features import CHECKED
from tilewise.kernels.native.objects.module import machine
from tilewise.kernels.native.programs.functions import functions_text
from tilewise.kernels.native.programs.kernels import kernel_object
from tilewise.kernels.native.programs.passes import OF_C, pass_object
from tilewise.kernels.native.programs.steps import Kernel, Parametric, Program


@dataclass(frozen=True)
class CompiledProgram:
    """The code of a program.

    Attributes:
        name: what its symbols begin with.
        functions: the names of what others call.
        features: what its code uses of an x86-64 processor, by LLVM's names.
        objects: relocatable files by name; together they want the C library alone.
    """

    name: str
    functions: tuple[str, ...]
    features: tuple[str, ...]
    objects: dict[str, bytes]


def compiled_program(program: Program) -> CompiledProgram:
    """Compile a program for processors that have what its target has.

    Raises:
        ScheduleError: a schedule cannot be applied to its problem.
        LoweringError: code generation failed, or this machine is no x86-64.
    """
    if not llvm.get_process_triple().startswith("x86_64"):
        raise LoweringError("programs are made for x86-64 on x86-64")
    objects: dict[str, bytes] = {}
    symbols: dict[Kernel | Parametric, str] = {}
    features: set[str] = set()
    for number, kernel in enumerate(program.kernels):
        symbols[kernel] = name = f"{program.name}_kernel{number}"
        objects[f"kernel{number}.o"], used = kernel_object(kernel, name, program.target)
        features.update(used)
    for number, one in enumerate(program.passes):
        symbols[one] = name = f"{program.name}_pass{number}"
        objects[f"pass{number}.o"], used = pass_object(one, name, program.target)
        features.update(used)
    ordered = tuple(name for name in CHECKED if name in features)
    objects["program.o"] = _functions(program, symbols, ordered)
    _check(objects)
    endings = ("run", "supported", *(("part", "help", "tell") if program.threads > 1 else ()))
    names = tuple(f"{program.name}_{ending}" for ending in endings)
    return CompiledProgram(program.name, names, ordered, objects)


def _functions(
    program: Program, symbols: dict[Kernel | Parametric, str], features: tuple[str, ...]
) -> bytes:
    """What others call; it runs before anybody knows whether the processor has the features."""
    made = machine(())
    module = llvm.parse_assembly(functions_text(program, symbols, features))
    module.triple, module.data_layout = made.triple, str(made.target_data)
    optimise(module, made, "level 1 by function")
    module.verify()
    return bytes(made.emit_object(module))


def _check(objects: dict[str, bytes]) -> None:
    """Whether the objects want nothing but each other and the C library, and hold no state."""
    read = {name: Elf.read(data) for name, data in objects.items()}
    defined = {symbol for one in read.values() for symbol in one.defined}
    for name, one in read.items():
        lacking = set(one.undefined) - defined - OF_C
        if lacking:
            raise LoweringError(f"{name} of the program would call {min(lacking)}")
        if one.writable_bytes:
            raise LoweringError(f"{name} of the program would have memory of its own")
