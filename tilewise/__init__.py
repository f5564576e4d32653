"""Tilewise's client: tuned and proven schedules from a service or from this machine.

`Client` is loaded when it is first asked for: commands that need no service do not wait for it.
"""

from typing import TYPE_CHECKING

from tilewise.errors import BadInputError, MissingError, TilewiseError

if TYPE_CHECKING:
    from tilewise.client import Client

__all__ = ["BadInputError", "Client", "MissingError", "TilewiseError"]


def __getattr__(name: str) -> object:
    if name == "Client":
        from tilewise.client import Client

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
