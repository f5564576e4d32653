"""Serving the application with uvicorn."""

import logging
import socket
from contextlib import ExitStack, suppress

from fastapi import FastAPI

from service.app import create_app
from service.db import schema
from service.errors import ServiceError
from service.host.machine import examine
from service.listening import listen
from service.settings import Settings
from service.uvicorn_server import Server

log = logging.getLogger(__name__)


def serve(
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 1,
    settings: Settings | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; the jobs that run then go back to the queue.

    Raises:
        HostError: the host is no address of this machine; raised before anything is opened.
        AddressError: the port cannot be had; likewise.
        DatabaseError: the database cannot be used; raised before anything is served.
        MachineError: this machine's processor cannot be named; likewise.
        ServiceError: a part could not be started; the log says which.
    """
    settings = settings or Settings()
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(levelname)s %(name)s: %(message)s"
    )
    with ExitStack() as stack:
        sockets = [stack.enter_context(one) for one in listen(host, port)]
        schema.prepare(settings.db)
        app = create_app(settings, workers, machine=examine())
        _run(app, sockets, settings)


def _run(app: FastAPI, sockets: list[socket.socket], settings: Settings) -> None:
    server = Server(app, log_level=settings.log_level)
    for one in sockets:
        host, port = one.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        log.info("listening on http://%s:%d (Ctrl-C to stop)", shown, port)
    with suppress(KeyboardInterrupt):  # which ends a service as it should be ended
        try:
            server.run(sockets)
        except SystemExit as error:
            raise ServiceError("the service could not be started; its log says why") from error
