"""Logs: one event per line, as text on a terminal and as JSON elsewhere.

Whatever logs, ours or a library's, comes through here, and carries what its context has bound:
the request's id in the service, the job in a worker. JSON keeps what a client has sent inside of
one line; the form for people quotes it.
"""

import logging
import sys
import traceback
from typing import Any, Literal

import structlog
from structlog.types import EventDict, Processor

Form = Literal["auto", "json", "text"]


def _without_colors(_logger: Any, _name: str, event: EventDict) -> EventDict:
    """An event without the copy of its message that uvicorn has for terminals."""
    event.pop("color_message", None)
    return event


_SHARED: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.ExtraAdder(),
    _without_colors,
]


def configure_logs(level: str, form: Form = "auto") -> None:
    """Log to stderr from now on; `auto` is text on a terminal, else JSON."""
    is_json = form == "json" or (form == "auto" and not sys.stderr.isatty())
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *(_json() if is_json else [_as_text]),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # A client that goes while it is written to would make a warning of each piece.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line for each thing that a run says


def bind(**fields: object) -> None:
    """Add these fields to every log line of this context."""
    structlog.contextvars.bind_contextvars(**fields)


def _json() -> list[Processor]:
    return [
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        structlog.processors.EventRenamer("message"),
        structlog.processors.JSONRenderer(ensure_ascii=False),
    ]


def _as_text(_logger: Any, _name: str, event: EventDict) -> str:
    """Such as `WARNING tilewise.service.app: text job=3`, and a traceback below it if any."""
    level = str(event.pop("level", "info")).upper()
    name, text = event.pop("logger", "root"), str(event.pop("event", ""))
    trace = event.pop("exc_info", None)
    fields = "".join(f" {key}={_quoted(value)}" for key, value in sorted(event.items()))
    line = f"{level} {name}: {_one_line(text)}{fields}"
    if not trace:
        return line
    error = sys.exc_info() if trace is True else trace
    return f"{line}\n{''.join(traceback.format_exception(*error)).rstrip()}"


def _one_line(text: str) -> str:
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def _quoted(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and " " not in text else repr(text)
