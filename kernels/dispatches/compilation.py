"""Modules compiled with a library in front, and what of it was put to use.

A library that finds nothing changes nothing, and says nothing. So the dispatches are looked for.
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
    """A module's code with a library."""

    code: bytes
    kernels: tuple[str, ...]


def compiled_with(text: str | bytes, library: str, flags: tuple[str, ...] = ()) -> Replaced:
    """Compile a module with a library, in children that can be killed.

    Raises:
        CompilerAbsentError: IREE's compiler is not installed.
        CompilerError: it failed, or took too long.
    """
    after = preprocessed(text, library, flags)
    with _file(library) as given:
        code = compile_module(text, (*flags, given))
    return Replaced(code, calls_in(after))


def replaced_in(text: str | bytes, library: str) -> tuple[str, ...]:
    """The names of the kernels that a module would call, one for each place; errors as above."""
    return calls_in(preprocessed(text, library))


def preprocessed(
    text: str | bytes,
    library: str,
    flags: tuple[str, ...] = (),
    seconds: float = COMPILE_LIMIT_S,
) -> str:
    """A module after a library has looked at it, without its weights; errors as above."""
    with _file(library) as given:
        return compiled_text(text, "preprocessing", (*flags, *SHORT_VALUES, given), seconds)


def calls_in(after: str) -> tuple[str, ...]:
    """The names of the kernels that a preprocessed module calls, one for each place."""
    return tuple(_DISPATCH.findall(after))


def moves_in(after: str) -> tuple[int, int]:
    """How many transpositions and pads such a module has."""
    return after.count("= linalg.transpose"), after.count("= tensor.pad")


@contextmanager
def _file(library: str) -> Iterator[str]:
    """The flag that names the library, in a file as long as the context lasts."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "library.mlir"
        path.write_text(library)
        yield f"{FLAG}={path}"
