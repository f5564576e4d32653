"""The service's settings and errors, as the command line has them."""

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from service.errors import DatabaseError, HostError, NotFoundError, ServiceError
from service.settings import Settings
from tilewise.errors import BadInputError, MissingError, TilewiseError


@contextmanager
def told() -> Iterator[None]:
    """The service's errors as the command line's: a bad database is bad input."""
    try:
        yield
    except (DatabaseError, HostError) as error:
        raise BadInputError(str(error)) from error
    except ValidationError as error:
        first = error.errors()[0]
        variable = "TILEWISE_" + "_".join(map(str, first["loc"])).upper()
        raise BadInputError(f"{variable}={first['input']!r}: {first['msg']}") from error
    except NotFoundError as error:
        raise MissingError(str(error)) from error
    except ServiceError as error:
        raise TilewiseError(str(error)) from error


def settings(database_url: str | None) -> Settings:
    """The environment's settings, with `--db` winning."""
    return Settings(db=database_url) if database_url else Settings()
