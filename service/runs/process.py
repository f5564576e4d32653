"""Load functions by name in processes that run jobs; the exit code for an unreachable service."""

from importlib import import_module
from typing import Any

UNREACHABLE = 75  # EX_TEMPFAIL of sysexits.h: the service could not be reached, or the database


def load(path: str) -> Any:
    """Load the object at `module:name`, whose module imports compilers."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
