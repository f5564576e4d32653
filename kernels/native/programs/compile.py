"""Compile a program to an object per kernel and pass, and to a shared library.

Numba compiles a pass to a function that reports errors and a wrapper that raises them. Passes have
no errors, so the first one's stores of errors are dropped and our own wrapper calls it.
"""

import functools
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import llvmlite.binding as llvm
from llvmlite import ir

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.export.source import edges
from tilewise.kernels.native.jit.object_code import optimise
from tilewise.kernels.native.language.compiler import symbol
from tilewise.kernels.native.macrokernel.parameters import Addresses, names_of
from tilewise.kernels.native.objects.entries import MACRO_KERNEL, Entries, Variant
from tilewise.kernels.native.objects.features import CHECKED, used_features
from tilewise.kernels.native.objects.module import ObjectCompiler, machine
from tilewise.kernels.native.objects.object_files import Elf
from tilewise.kernels.native.passes.passes import pass_of
from tilewise.kernels.native.passes.rows.emit import emit
from tilewise.kernels.native.passes.rows.program import RowProgram
from tilewise.kernels.native.plan import KernelPlan, plan
from tilewise.kernels.native.programs.functions import functions_text
from tilewise.kernels.native.programs.steps import Kernel, NetworkProgram, Parametric, Pass
from tilewise.kernels.system.children import child_environment
from tilewise.kernels.target.model import Target


def words_of(planned: KernelPlan) -> tuple[str, ...]:
    """Return the names of a kernel's words in its macro-kernel."""
    return (*names_of(Addresses), *edges(planned))


def kernel_object(kernel: Kernel, name: str, target: Target) -> tuple[bytes, tuple[str, ...]]:
    """Return the object of a kernel and the processor features that it uses.

    Its function is `void NAME(int64_t words...)`. Raises LoweringError if code generation fails.
    """
    planned = plan(kernel.problem, kernel.schedule, target)
    given = ", ".join(words_of(planned))
    short = name.removeprefix(symbol(""))
    text = f"@njit\ndef {short}({given}):\n    call_address({MACRO_KERNEL}, {given})\n"
    entries = Entries(name, (name,), text, has_supported=False)
    try:
        compiler = ObjectCompiler(entries, [Variant(planned)], target)
        return compiler.object_file(compiler.bitcode()), compiler.features
    except RuntimeError as error:  # LLVM's own
        raise LoweringError(f"compiling {kernel.problem} failed: {error}") from error


OF_C = frozenset({
    "memcpy", "memmove", "memset", "expf", "exp", "logf", "log", "erff", "erf", "tanhf", "tanh",
    "powf", "pow", "sqrtf", "sqrt", "sched_yield",
})  # fmt: skip
"""What code may call of the C library."""
_STORED_ERROR = re.compile(r"^  store ptr @\.const\.picklebuf[^\n]*\n", re.MULTILINE)
_WRAPPER = "cfunc."


@functools.lru_cache(maxsize=64)
def pass_object(one: Parametric, symbol: str, target: Target) -> tuple[bytes, tuple[str, ...]]:
    """Return the object of a pass and the processor features that it uses.

    Its function is `void symbol(int64_t parameters)`. Raises LoweringError if it cannot be made.
    """
    is_written = isinstance(one, RowProgram)
    try:
        text = _row_text(one, symbol, target) if isinstance(one, RowProgram) else _text(one, symbol)
    except Exception as error:
        raise LoweringError(f"compiling {one} failed: {error}") from error
    features = used_features(target.features, text)
    made = machine(features)
    module = llvm.parse_assembly(text)
    for held in (*module.functions, *module.global_variables):
        if not held.is_declaration and held.name != symbol:
            held.linkage = "internal"
    module.triple, module.data_layout = made.triple, str(made.target_data)
    optimise(module, made, "none" if is_written else "level 3")
    return bytes(made.emit_object(module)), features


def _row_text(one: RowProgram, symbol: str, target: Target) -> str:
    module = ir.Module(symbol)
    emit(module, one, name=symbol, has_fma=target.has_fma)
    return str(module)


def _text(one: Pass, symbol: str) -> str:
    """Return Numba's IR of a pass without the stores of errors."""
    made = pass_of(one.name).owner
    wrapper: str = made.native_name
    text = _STORED_ERROR.sub("", str(made.inspect_llvm()))
    module = llvm.parse_assembly(text)
    module.link_in(llvm.parse_assembly(_caller(symbol, wrapper.removeprefix(_WRAPPER))))
    return str(module)


def _caller(symbol: str, inner: str) -> str:
    return f"""
declare i32 @{inner}(ptr, ptr, i64)
define void @{symbol}(i64 %at) {{
  %result = alloca ptr
  %error = alloca ptr
  %status = call i32 @{inner}(ptr %result, ptr %error, i64 %at)
  ret void
}}
"""


@dataclass(frozen=True)
class CompiledProgram:
    """The code of a program.

    `functions` are the public names, `features` LLVM's names of the x86-64 features that it uses,
    `objects` relocatable files that need only the C library.
    """

    name: str
    functions: tuple[str, ...]
    features: tuple[str, ...]
    objects: dict[str, bytes]


def compiled_program(program: NetworkProgram) -> CompiledProgram:
    """Compile a program for processors with its target's features.

    Raises ScheduleError for an inapplicable schedule, LoweringError if code generation fails or
    this machine is not x86-64.
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
    together = ("part", "share", "help", "tell") if program.threads > 1 else ()
    endings = ("run", "supported", "steps", *together)
    names = tuple(f"{program.name}_{ending}" for ending in endings)
    return CompiledProgram(program.name, names, ordered, objects)


def _functions(
    program: NetworkProgram, symbols: dict[Kernel | Parametric, str], features: tuple[str, ...]
) -> bytes:
    """Return the public functions, compiled without optional features."""
    made = machine(())
    module = llvm.parse_assembly(functions_text(program, symbols, features))
    module.triple, module.data_layout = made.triple, str(made.target_data)
    optimise(module, made, "level 1 by function")
    module.verify()
    return bytes(made.emit_object(module))


def _check(objects: dict[str, bytes]) -> None:
    """Require objects to use only each other and the C library, and to hold no state."""
    read = {name: Elf.read(data) for name, data in objects.items()}
    defined = {symbol for one in read.values() for symbol in one.defined}
    for name, one in read.items():
        lacking = set(one.undefined) - defined - OF_C
        if lacking:
            raise LoweringError(f"{name} of the program would call {min(lacking)}")
        if one.writable_bytes:
            raise LoweringError(f"{name} of the program would have memory of its own")


SECONDS = 120.0


def shared_library(program: CompiledProgram) -> bytes:
    """Return the shared library of a program, which exports its functions alone.

    Raises LoweringError if linking fails.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, data in program.objects.items():
            (folder / file).write_bytes(data)
        seen = "".join(f" {function};" for function in program.functions)
        (folder / "seen").write_text(f"{{ global:{seen} local: *; }};\n")
        options = ["-shared", "-soname", f"{program.name}.so", "--version-script", "seen",
                   "-z", "noexecstack", "--build-id=none", "-o", "made"]  # fmt: skip
        _run_linker([*options, *program.objects], folder)
        return (folder / "made").read_bytes()


def _run_linker(arguments: Sequence[str], folder: Path) -> None:
    """Run the linker of IREE's compiler."""
    from iree.compiler.tools import binaries

    try:
        command = [str(binaries.find_tool("iree-lld")), "-flavor", "gnu", *arguments]
        ended = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, errors="replace",
            timeout=SECONDS, env=child_environment(), check=False,
        )  # fmt: skip
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise LoweringError(f"iree-lld does not link: {error}") from error
    if ended.returncode:
        lines = (ended.stderr or ended.stdout).strip().splitlines()
        raise LoweringError(f"iree-lld does not link: {lines[0] if lines else ''}")
