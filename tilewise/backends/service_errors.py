"""The service's settings and errors, as the command line has them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tilewise.errors import (
    BadInputError,
    MissingError,
    NoAnswerError,
    TilewiseError,
    UnreadableError,
)
from tilewise.service import errors
from tilewise.service.db import schema
from tilewise.service.db.session import Sessions, make_engine, make_sessions
from tilewise.service.default_database import default_database

if TYPE_CHECKING:
    from tilewise.service.settings import Settings

PREFIX = "TILEWISE_"
DATABASE = "TILEWISE_DB"
NO_SETTINGS = ("TILEWISE_CACHE_DIR", "TILEWISE_SERVER", "TILEWISE_TOKEN")


@contextmanager
def converted_errors() -> Iterator[None]:
    """Convert the service's errors to those of the command line; a bad database is bad input."""
    try:
        yield
    except errors.BusyError as error:
        raise TilewiseError(str(error)) from error
    except (errors.ArchiveError, errors.DatabaseError, errors.HostError) as error:
        raise BadInputError(str(error)) from error
    except errors.NotFoundError as error:
        raise MissingError(str(error)) from error
    except errors.TamperedError as error:
        raise UnreadableError(str(error)) from error
    except errors.ServiceError as error:
        raise TilewiseError(str(error)) from error


def settings(database_url: str | None, **options: str | None) -> "Settings":
    """Return the environment's settings, overridden by what was typed.

    Raises BadInputError for an invalid variable.
    """
    from pydantic import ValidationError

    from tilewise.service.settings import Settings

    given: dict[str, Any] = {"db": database_url, **options}
    try:
        return Settings(**{name: value for name, value in given.items() if value})
    except ValidationError as error:
        first = error.errors()[0]
        variable = PREFIX + "_".join(map(str, first["loc"])).upper()
        raise BadInputError(
            f"{variable}={first['input']!r}: {first['msg'].removeprefix('Value error, ')}"
        ) from error


def database_of(database_url: str | None) -> str:
    """Return the URL of this machine's database, as `settings` has it.

    Without other settings pydantic is not loaded, which takes a tenth of a look-up's time.
    """
    given = (name for name, value in os.environ.items() if value)
    if any(name.upper().startswith(PREFIX) for name in {*given} - {DATABASE, *NO_SETTINGS}):
        return settings(database_url).db
    return database_url or os.environ.get(DATABASE) or default_database()


@contextmanager
def opened_sessions(database_url: str | None) -> Iterator[Sessions]:
    """Open this machine's database, creating it if necessary."""
    with converted_errors():
        url = database_of(database_url)
        schema.prepare(url)
        engine = make_engine(url)
        try:
            yield make_sessions(engine)
        except errors.OutageError as error:  # unlike a database that cannot be opened
            raise NoAnswerError(str(error)) from error
        finally:
            engine.dispose()


@contextmanager
def stored_sessions(database_url: str | None) -> Iterator[Sessions]:
    """Open this machine's database for reading; raise MissingError if there is none."""
    with converted_errors():
        url = database_of(database_url)
        if schema.is_absent(url):
            name = make_engine(url).url.render_as_string()
            raise MissingError(
                f"database {name} does not exist, so nothing is stored; tilewise tune makes one"
            )
    with opened_sessions(url) as sessions:
        yield sessions
