"""Compile modules with a library, and report which of its kernels they call.

IREE says nothing when a library matches no op, so the dispatches are counted.
"""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tilewise.kernels.dispatches.library import FLAG
from tilewise.kernels.mlir.iree.compiler import (
    COMPILE_LIMIT_S,
    SHORT_VALUES,
    compile_module,
    compiled_text,
)

_DISPATCH = re.compile(r"flow\.dispatch @(tilewise_\w+)_executable::@run_\w+\(")


@dataclass(frozen=True)
class Replaced:
    """A module's code, and the kernels that it calls, one for each place."""

    code: bytes
    kernels: tuple[str, ...]


def compiled_with(text: str | bytes, library: str, flags: tuple[str, ...] = ()) -> Replaced:
    """Compile a module with a library; raise CompilerError on failure or timeout."""
    after = preprocessed(text, library, flags)
    with _file(library) as given:
        code = compile_module(text, (*flags, given))
    return Replaced(code, calls_in(after))


def preprocessed(
    text: str | bytes, library: str, flags: tuple[str, ...] = (), seconds: float = COMPILE_LIMIT_S
) -> str:
    """Return a module as the library leaves it, without its weights."""
    with _file(library) as given:
        return compiled_text(text, "preprocessing", (*flags, *SHORT_VALUES, given), seconds)


def calls_in(after: str) -> tuple[str, ...]:
    """Return the names of the kernels that a preprocessed module calls, one for each place."""
    return tuple(_DISPATCH.findall(after))


@contextmanager
def _file(library: str) -> Iterator[str]:
    """Yield the flag that names a temporary file with the library."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "library.mlir"
        path.write_text(library)
        yield f"{FLAG}={path}"
