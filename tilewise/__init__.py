"""Tilewise's client: tuned and proven schedules from a service or from this machine.

`Client` and `AsyncClient` load on first use, since commands without a service do not need them.
"""

from typing import TYPE_CHECKING

from tilewise.errors import BadInputError, MissingError, TilewiseError
from tilewise.version import VERSION

if TYPE_CHECKING:
    from tilewise.client import AsyncClient, Client

__all__ = ["AsyncClient", "BadInputError", "Client", "MissingError", "TilewiseError"]
__version__ = VERSION


def __getattr__(name: str) -> object:
    if name in ("AsyncClient", "Client"):
        import tilewise.client

        return getattr(tilewise.client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
