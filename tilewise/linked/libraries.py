"""Shared libraries in the cache folder, made by the C++ compiler of the machine."""

import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tilewise.errors import TilewiseError
from tilewise.kernels.system.files import require_cache_dir

_HEADER = Path(__file__).with_name("kernels.h")


def cache_folder() -> Path:
    """Return the folder of shared libraries and verdicts, created if necessary."""
    folder = require_cache_dir() / "linked"
    folder.mkdir(exist_ok=True)
    return folder


def link(arguments: Sequence[str], output: Path) -> None:
    """Write a shared library atomically.

    Raises:
        TilewiseError: the compiler is missing or failed; with the first line that has an error.
    """
    found = (name for name in ("g++", "clang++", "c++") if shutil.which(name))
    compiler = os.environ.get("CXX") or next(found, None)
    if compiler is None:
        raise TilewiseError("no C++ compiler: install g++, or name one by CXX")
    with tempfile.TemporaryDirectory(dir=output.parent) as folder:
        made = Path(folder) / output.name
        command = [*shlex.split(compiler), "-shared", "-fPIC", *arguments, "-o", str(made)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise TilewiseError(f"{compiler}: {error.strerror}; name a compiler by CXX") from error
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line] or [compiler]
            raise TilewiseError(f"{compiler}: cannot make {output.name}: {lines[0][:100]}")
        made.replace(output)


def compiled(source: Path, release: str, arguments: Sequence[str]) -> Path:
    """Return the library of a C++ file that includes `kernels.h`, compiled at its first use.

    Args:
        source: the file.
        release: of the framework whose headers it includes.
        arguments: for the compiler, such as folders of headers.
    """
    flags = [one for one in arguments if not one.startswith(("-I", "-L"))]  # not where it is
    text = source.read_bytes() + _HEADER.read_bytes() + " ".join([release, *flags]).encode()
    path = cache_folder() / f"{source.stem}-{hashlib.sha256(text).hexdigest()[:16]}.so"
    if not path.exists():
        options = ["-O1", "-std=c++20", "-w", f"-I{_HEADER.parent}"]
        link([*options, str(source), *arguments], path)
    return path
