"""User modules that add steps, instructions, micro-kernels or search parameters.

`TILEWISE_EXTENSIONS` names them, separated by commas. Every command and every child process imports
them first, so that all can read and lower the same schedules. A program that uses Tilewise as a
library calls `load_extensions` itself.
"""

import importlib
import importlib.util
import os
from pathlib import Path

from tilewise.kernels.errors import ExtensionError

VARIABLE = "TILEWISE_EXTENSIONS"


def load_extensions() -> None:
    """Import the modules that `TILEWISE_EXTENSIONS` names, or raise ExtensionError for one."""
    for name in _names():
        try:
            importlib.import_module(name)
        except Exception as error:  # a user's module may fail in any way
            raise _broken(name, error) from error


def extension_sources() -> list[Path]:
    """Return the files of the modules, of packages all in their folder; raise ExtensionError."""
    found = list[Path]()
    for name in _names():
        try:
            spec = importlib.util.find_spec(name)
        except Exception as error:  # it imports the package
            raise _broken(name, error) from error
        if spec is None or spec.origin is None:
            raise _broken(name, ModuleNotFoundError(f"No module named {name!r}"))
        file = Path(spec.origin)
        found += sorted(file.parent.rglob("*.py")) if spec.parent else [file]
    return found


def _names() -> list[str]:
    named = os.environ.get(VARIABLE, "").split(",")
    return [name.strip() for name in named if name.strip()]


def _broken(name: str, error: Exception) -> ExtensionError:
    why = f"{type(error).__name__}: {error}"
    return ExtensionError(
        f"{VARIABLE}: module {name!r} cannot be imported: {why}; correct the module, the variable "
        "or PYTHONPATH"
    )
