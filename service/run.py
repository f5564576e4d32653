"""Serving the application with uvicorn."""

import logging

from service.app import create_app
from service.db import schema
from service.errors import ServiceError
from service.machine import examine
from service.server import Server
from service.settings import Settings


def serve(
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 1,
    settings: Settings | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; the jobs that run then go back to the queue.

    Raises:
        DatabaseError: the database cannot be used; raised before anything is served.
        MachineError: this machine's processor cannot be named; likewise.
    """
    settings = settings or Settings()
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(levelname)s %(name)s: %(message)s"
    )
    schema.prepare(settings.db)
    app = create_app(settings, workers, machine=examine())
    server = Server(app, host=host, port=port, log_level=settings.log_level)
    server.run()
    if not server.started:
        raise ServiceError("the service could not be started; its log says why")
