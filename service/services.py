"""What the routes share: sessions, this machine, the toolchain, the workers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from service.db import schema, session
from service.db.session import Sessions
from service.machine import MachineInfo
from service.pool import Pool


@dataclass(frozen=True)
class Services:
    """The parts of a running service.

    Attributes:
        pool: the embedded workers, None when there are none.
    """

    engine: Engine
    sessions: Sessions
    machine: MachineInfo
    toolchain: str
    pool: Pool | None

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session on a database of the right schema.

        Raises:
            DatabaseError: also when somebody else has migrated it meanwhile.
        """
        with session.reading(self.sessions) as opened:
            schema.check_session(opened)
            yield opened

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """A transaction on a database of the right schema; commits at its end.

        Raises:
            DatabaseError: as `reading`, and when the database is read-only.
        """
        with session.writing(self.sessions) as opened:
            schema.check_session(opened)
            yield opened

    def wake(self) -> None:
        """Tell the workers that there is something to do."""
        if self.pool is not None:
            self.pool.wake()


def _services(request: Request) -> Services:
    return cast("Services", request.app.state.services)


ServicesDep = Annotated[Services, Depends(_services)]
