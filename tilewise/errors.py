"""The errors of the client and the command line; each knows its exit code."""

from collections.abc import Iterator
from contextlib import contextmanager


class TilewiseError(Exception):
    """Root of the client's errors: something failed that the caller's input did not cause."""

    exit_code = 1


class BadInputError(TilewiseError):
    """The request makes no sense as it was made; the message names what and why."""

    exit_code = 2


class MissingError(TilewiseError):
    """The requested thing does not exist; the message says how to make it."""

    exit_code = 3


class UnreadableError(TilewiseError):
    """A stored result cannot be read; others may be."""


class NoAnswerError(TilewiseError):
    """The service or the database cannot be reached; other requests would fail as well."""


@contextmanager
def bad_input(name: str, *kinds: type[Exception]) -> Iterator[None]:
    """Convert errors of some kinds to BadInputError, which names the input."""
    try:
        yield
    except kinds as error:
        raise BadInputError(f"{name}: {error}") from error
