"""Tilewise's client: tuned and proven schedules from a service or from this machine."""

from tilewise.client import Client
from tilewise.errors import BadInputError, MissingError, TilewiseError

__all__ = ["BadInputError", "Client", "MissingError", "TilewiseError"]
