"""The HTTP server: uvicorn, which notifies the application before it stops."""

import gc
import logging
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from tilewise.service.api.access.caller import is_loopback
from tilewise.service.app import create_app, stop_waiting
from tilewise.service.db import schema, tokens
from tilewise.service.db.session import make_engine, make_sessions, reading
from tilewise.service.errors import ServiceError
from tilewise.service.host.machine import examine
from tilewise.service.listening import (
    KINDS_OF_STREAMS,
    MOST_STREAMS,
    OTHER_FILES,
    listen,
    most_streams,
    raise_file_limit,
)
from tilewise.service.settings import Settings
from tilewise.service.telemetry.logs import configure_logs

SHUTDOWN_S = 5
NEEDED_FILES = OTHER_FILES + KINDS_OF_STREAMS * MOST_STREAMS

log = logging.getLogger(__name__)


class Protocol(H11Protocol):
    """HTTP/1.1 that does not run the application on connections that the server has closed.

    uvicorn answers 400 to a body that is no HTTP by itself, while the application may be about to
    answer the same request: that second answer is an error on the connection, which was logged as
    a fault of the service.
    """

    def send_400_response(self, msg: str) -> None:
        """Answer 400 and close; the application's own answer, if it comes yet, is dropped."""
        cycle = self.cycle
        has_begun = cycle is not None and cycle.response_started and not cycle.response_complete
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        if has_begun:
            self.transport.close()
        else:
            super().send_400_response(msg)


class Server(uvicorn.Server):
    """A server that answers waiting requests at the signal to end."""

    def __init__(self, app: FastAPI, **options: object) -> None:
        self._app = app
        given: dict[str, Any] = {
            "timeout_graceful_shutdown": SHUTDOWN_S,
            "server_header": False,
            "access_log": False,  # `tilewise.service.telemetry.requests` logs requests
            "log_config": None,
            "http": Protocol,
            **options,
        }
        super().__init__(uvicorn.Config(app, **given))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to serve; what is loaded by then stays, and is not looked at for garbage again."""
        await super().startup(sockets)
        gc.collect()
        gc.freeze()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Record a signal to end."""
        stop_waiting(self._app)
        super().handle_exit(signal.Signals(sig), frame)


def serve(
    host: str = "127.0.0.1", port: int = 8000, workers: int = 1, settings: Settings | None = None
) -> None:
    """Serve until SIGINT or SIGTERM; running jobs go back to the queue.

    A database server that is away is waited for. Raises HostError, AddressError, DatabaseError or
    MachineError before anything is served, ServiceError if a part could not be started.
    """
    settings = settings or Settings()
    configure_logs(settings.log_level, settings.log_format)
    files = raise_file_limit()
    if files < NEEDED_FILES:
        log.warning(
            "only %d files may be open: at most %d streams of events of a kind; "
            "raise the limit (ulimit -Hn) to %d",
            *(files, most_streams(), NEEDED_FILES),
        )
    with ExitStack() as stack:
        sockets = [stack.enter_context(one) for one in listen(host, port)]
        with _set_at_end() as stopping:
            if not schema.prepare_once_there(settings.db, stopping):
                return
        if not all(is_loopback(one.getsockname()[0]) for one in sockets):  # others may reach it
            settings = settings.model_copy(update={"require_tokens": True})
        if settings.require_tokens and not _has_tokens(settings.db):
            log.warning(
                "no token exists yet; create the first one on this machine: "
                "tilewise token create NAME --scope admin"
            )
        if settings.scheduler and not settings.service_url:
            settings = settings.model_copy(update={"service_url": _url_of(sockets[0])})
        app = create_app(settings, workers, machine=examine(), measures_peaks=True)
        _run(app, sockets, settings, connections=max(1, files - OTHER_FILES))


@contextmanager
def _set_at_end() -> Iterator[threading.Event]:
    """What SIGTERM sets, which the first process of a container would not be ended by."""
    stopping = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    try:
        yield stopping
    finally:
        signal.signal(signal.SIGTERM, before)


def _url_of(listening: socket.socket) -> str:
    """By which the workers of a cluster reach a socket, as far as this host knows."""
    host, port = listening.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = socket.getfqdn()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _has_tokens(url: str) -> bool:
    engine = make_engine(url, connections=1)
    try:
        with reading(make_sessions(engine)) as session:
            return bool(tokens.every(session))
    finally:
        engine.dispose()


def _run(app: FastAPI, sockets: list[socket.socket], settings: Settings, connections: int) -> None:
    server = Server(app, log_level=settings.log_level, limit_concurrency=connections)
    for one in sockets:
        host, port = one.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        log.info("listening on http://%s:%d (Ctrl-C to stop)", shown, port)
    with suppress(KeyboardInterrupt):  # which ends a service as it should be ended
        try:
            server.run(sockets)
        except SystemExit as error:
            raise ServiceError("the service could not be started; its log says why") from error
