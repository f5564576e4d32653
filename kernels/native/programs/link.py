"""A program as a shared library, linked by IREE's linker or the system's C compiler."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.programs.compile import CompiledProgram
from tilewise.kernels.system.children import child_environment

SECONDS = 120.0
_LLD, _CC = "iree-lld", ("cc", "gcc", "clang")


def shared_library(program: CompiledProgram) -> bytes:
    """The shared library of a program, of which others see its functions alone.

    Raises:
        LoweringError: there is no linker here, or it failed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, data in program.objects.items():
            (folder / file).write_bytes(data)
        seen = "".join(f" {function};" for function in program.functions)
        (folder / "seen").write_text(f"{{ global:{seen} local: *; }};\n")
        options = ["-shared", "-soname", f"{program.name}.so", "--version-script", "seen",
                   "-z", "noexecstack", "--build-id=none", "-o", "made"]  # fmt: skip
        _run([*_linker(options), *program.objects], folder)
        return (folder / "made").read_bytes()


def _linker(options: Sequence[str]) -> list[str]:
    """The command that links with options of `ld`."""
    try:
        from iree.compiler.tools import binaries

        return [str(binaries.find_tool(_LLD)), "-flavor", "gnu", *options]
    except (ImportError, ValueError):
        pass
    found = next(filter(None, map(shutil.which, _CC)), None)
    if found is None:
        raise LoweringError("no linker is here; install tilewise[kernels] or a C compiler")
    passed = [word for one in options for word in ("-Xlinker", one)]
    return [found, "-nostdlib", "-shared", *passed]


def _run(command: Sequence[str], folder: Path) -> None:
    try:
        ended = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, errors="replace",
            timeout=SECONDS, env=child_environment(), check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LoweringError(f"{Path(command[0]).name} does not link: {error}") from error
    if ended.returncode:
        said = (ended.stderr or ended.stdout).strip().splitlines()
        raise LoweringError(f"{Path(command[0]).name} does not link: {said[0] if said else ''}")
