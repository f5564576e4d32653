"""What processes that run jobs load by name, and the exit code of one that reached nobody."""

from importlib import import_module
from typing import Any

UNREACHABLE = 75  # EX_TEMPFAIL of sysexits.h: the service could not be asked, or the database


def load(path: str) -> Any:
    """The object at `module:name`, for it loads compilers, which the service must not."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
