"""The HTTP server: uvicorn, which tells the application of its end in time."""

import signal
from types import FrameType

import uvicorn
from fastapi import FastAPI

from service.app import stop_waiting

SHUTDOWN_S = 5


class Server(uvicorn.Server):
    """Answers requests that wait for a job, or for a text that is made, at the signal to end.

    By itself uvicorn lets them wait for `SHUTDOWN_S` and then breaks them off, which is a 500.

    Args:
        app: what is served.
        options: of `uvicorn.Config`.
    """

    def __init__(self, app: FastAPI, **options: object) -> None:
        self._app = app
        super().__init__(
            uvicorn.Config(app, timeout_graceful_shutdown=SHUTDOWN_S, **options)  # type: ignore[arg-type]
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take note of a signal to end."""
        stop_waiting(self._app)
        super().handle_exit(signal.Signals(sig), frame)
