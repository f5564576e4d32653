"""`iree-compile`, in a process that can be killed."""

import subprocess
import tempfile
from pathlib import Path

from tilewise.kernels.errors import CompilerAbsentError, CompilerError
from tilewise.kernels.system.children import child_command, child_environment, signal_name
from tilewise.kernels.target.cores import core_of
from tilewise.kernels.target.machine import Processor, this_processor

CPU = "--iree-llvmcpu-target-cpu="
FLAGS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    f"{CPU}host",
    "--iree-input-demote-f64-to-f32=false",
)
"""How every module is compiled: for this processor, and with its own types."""

_OLDER = ("f", "bw", "cd", "dq", "vl", "ifma", "vbmi", "vbmi2", "vnni", "bitalg", "vpopcntdq")
OLDER_HAS = frozenset(f"avx512{name}" for name in _OLDER)
"""Features of a processor that can run code for its older model."""

DATA_TILING = "--iree-opt-data-tiling"
SHORT_VALUES = (
    "--mlir-elide-elementsattrs-if-larger=16",
    "--mlir-elide-resource-strings-if-larger=16",
)
"""Prints no weights, which need not be read again."""

CRASH = "LLVM ERROR:"
ERRORS = ("error:", CRASH, "Assertion failed:")
"""What precedes a message: MLIR's diagnostics, and LLVM's errors before it aborts."""

COMPILE_LIMIT_S = 90.0
COMPILE_MEMORY = 16 << 30  # of address space, far above what is touched


def compile_module(
    text: str | bytes, flags: tuple[str, ...] = (), seconds: float = COMPILE_LIMIT_S
) -> bytes:
    """Return the code (a vmfb) of a module's text or bytecode.

    Raises:
        CompilerAbsentError: IREE's compiler is not installed.
        CompilerError: it failed, or took longer than `seconds`.
    """
    return _compiled(text, (*FLAGS, *flags), seconds)


def compile_file(
    source: Path, code: Path, flags: tuple[str, ...] = (), seconds: float = COMPILE_LIMIT_S
) -> None:
    """Write the code (a vmfb) of a file of any size; raise as `compile_module`."""
    _run((*FLAGS, *flags), source, code, seconds)


def compiled_text(
    text: str | bytes, phase: str, flags: tuple[str, ...] = (), seconds: float = COMPILE_LIMIT_S
) -> str:
    """Return the module after a phase such as `executable-configurations`; raise likewise."""
    return _compiled(text, (*FLAGS, f"--compile-to={phase}", *flags), seconds).decode()


def find_compiler() -> str:
    """Return the path of `iree-compile`, or raise CompilerAbsentError."""
    try:
        from iree.compiler.tools import binaries
    except ModuleNotFoundError as error:
        raise CompilerAbsentError(
            f"{error.name} is not installed; install tilewise[kernels]"
        ) from error
    return str(binaries.find_tool("iree-compile"))


def _compiled(text: str | bytes, flags: tuple[str, ...], seconds: float) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        source, code = Path(folder) / "module.mlir", Path(folder) / "module.out"
        source.write_bytes(text.encode() if isinstance(text, str) else text)
        _run(flags, source, code, seconds)
        return code.read_bytes()


def _run(flags: tuple[str, ...], source: Path, code: Path, seconds: float) -> None:
    done = _tried(flags, source, code, seconds)
    older = older_model(this_processor()) if CRASH in done.stderr else None
    if done.returncode and older is not None:
        named = tuple(flag for flag in flags if not flag.startswith(CPU))
        done = _tried((*named, f"{CPU}{older}"), source, code, seconds)
    if done.returncode:
        raise CompilerError(f"does not compile: {_why(done)}")


def older_model(here: Processor) -> str | None:
    """Return a model of processor whose features this one all has; None if its own name works.

    A virtual machine may hide features such as bf16. IREE takes them from the model's name, and
    makes vectors that LLVM cannot select.
    """
    core, _ = core_of(here.name)
    hides = "avx512bf16" not in here.features and OLDER_HAS.issubset(here.features)
    return core.older_model if hides else None


def _tried(
    flags: tuple[str, ...], source: Path, code: Path, seconds: float
) -> "subprocess.CompletedProcess[str]":
    command = [find_compiler(), *flags, str(source), "-o", str(code)]
    try:
        return subprocess.run(
            child_command(
                "tilewise.kernels.mlir.iree.compile_child", str(COMPILE_MEMORY), *command
            ),
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CompilerError(f"no code after {seconds:.0f} s") from error


def _why(done: "subprocess.CompletedProcess[str]") -> str:
    """Return the first error; after a crash LLVM's or the signal, not the stack."""
    lines = done.stderr.splitlines()
    for sign in ERRORS:
        found = next((line for line in lines if sign in line), "")
        if message := found.partition(sign)[2].strip():
            return message
    if done.returncode < 0:
        return f"the compiler ended with {signal_name(-done.returncode)}"
    return lines[-1].strip() if lines else "no message"
