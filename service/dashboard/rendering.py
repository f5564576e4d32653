"""Pages: templates, what they call, and the highlighting of code."""

import re
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from difflib import SequenceMatcher
from functools import cache
from http import HTTPStatus
from typing import Any, ClassVar

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import RegexLexer
from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text

from tilewise.kernels.errors import KernelsError, ProblemError, ScheduleError
from tilewise.kernels.quoting import duration
from tilewise.schema.base import Json
from tilewise.search.errors import SearchError
from tilewise.search.space.points import TilePoint
from tilewise.service.api.access import caller_of
from tilewise.service.api.access.caller import SAFE
from tilewise.service.api.problem_details import ProblemResponse, headers_of, status_and_text
from tilewise.service.dashboard.assets import POLICY, version
from tilewise.service.db.base import now
from tilewise.service.errors import DamagedError, ServiceError, UnfinishedError


def calls_of(document: Json) -> dict[str, list[Json]]:
    """Return the calls of an OpenAPI document with method and path, by tag, in order."""
    found: dict[str, list[Json]] = {}
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            for tag in call.get("tags", ["others"]):
                found.setdefault(tag, []).append({**call, "method": method.upper(), "path": path})
    return found


def describe_schema(schema: Json) -> str:
    """Return a short description of a value's schema."""
    if "anyOf" in schema:
        kinds = [describe_schema(one) for one in schema["anyOf"] if one.get("type") != "null"]
        return " or ".join(kinds)
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    words = [str(schema.get("type", "any"))]
    bounds = (("minimum", "at least"), ("maximum", "at most"), ("maxLength", "no longer than"))
    words += [f"{bound} {schema[name]}" for name, bound in bounds if name in schema]
    if "default" in schema and schema["default"] is not None:
        words.append(f"by itself {schema['default']}")
    return ", ".join(words)


PREFIX = "c-"
MOST_HIGHLIGHTED = 120_000  # characters; a longer text is shown plain


class MlirLexer(RegexLexer):
    """Highlight MLIR: operations, values, symbols, attributes, types, comments."""

    name = "MLIR"
    tokens: ClassVar = {
        "root": [
            (r"//[^\n]*", Comment.Single),
            (r'"(?:[^"\\\n]|\\.)*"', String),
            (r"%[\w$.-]+(?::\d+)?", Name.Variable),
            (r"@[\w$.-]+", Name.Function),
            (r"\^\w+", Name.Label),
            (r"![\w.]+", Keyword.Type),
            (r"#[\w.]+", Name.Decorator),
            (r"\b(?:[fi]\d+|bf16|index|tensor|memref|vector)\b", Keyword.Type),
            (r"\b[a-z_]\w*(?:\.\w+)+", Keyword),
            (r"\b(?:module|attributes|in|to|true|false|unit)\b", Keyword.Reserved),
            (r"-?\b\d[\w.+-]*", Number),
            (r"->|[=:*]", Operator),
            (r"[()\[\]{}<>,?]", Punctuation),
            (r"\w+", Name),
            (r"\s+|.", Text),
        ]
    }
    flags = re.MULTILINE


def mlir(text: str) -> Markup:
    """Return a script."""
    return _marked(text, MlirLexer())


def python(text: str) -> Markup:
    """Return a kernel."""
    return _marked(text, PythonLexer())


def plain(text: str) -> Markup:
    """Return other text, escaped."""
    return Markup("<pre>{}</pre>").format(text)


def _marked(text: str, lexer: RegexLexer) -> Markup:
    if len(text) > MOST_HIGHLIGHTED:
        return plain(text)
    made = highlight(text, lexer, HtmlFormatter(cssclass="code", classprefix=PREFIX))
    return Markup(made)  # the formatter has escaped it


def differences(left: Sequence[str], right: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return the lines of two texts side by side: `same`, `changed`, `removed`, `added`."""
    rows: list[tuple[str, str, str]] = []
    matcher = SequenceMatcher(a=left, b=right, autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        for index in range(max(b - a, d - c)):
            is_old, is_new = a + index < b, c + index < d
            change = "changed" if is_old and is_new else "removed" if is_old else "added"
            old, new = left[a + index] if is_old else "", right[c + index] if is_new else ""
            rows.append(("same" if kind == "equal" else change, old, new))
    return rows


HEADERS = {
    "Content-Security-Policy": POLICY,
    # Without a referrer a browser says of a form that it comes from nowhere.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
REFUSED = (ServiceError, KernelsError, SearchError, RequestValidationError)

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class StoredRoute(APIRoute):
    """A route that shows stored data; an unreadable value there is a damaged row."""

    def get_route_handler(self) -> Handler:
        """Return the handler, which answers such errors as pages."""
        handler = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handler(request)
            except (ProblemError, ScheduleError) as error:
                if request.method not in SAFE:
                    raise
                raise DamagedError(f"a row of the database is damaged: {error}") from error

        return handled


class PageRoute(StoredRoute):
    """A route that answers refusals with pages; internal errors are left to the framework."""

    def get_route_handler(self) -> Handler:
        """Return the handler, with its errors caught."""
        handler = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handler(request)
            except UnfinishedError:
                raise
            except REFUSED as error:
                return _refusal(request, *status_and_text(error), headers_of(error))

        return handled


def as_page(request: Request, answer: ProblemResponse) -> HTMLResponse:
    """Return a problem document as a page."""
    details = answer.details
    return _refusal(request, HTTPStatus(details.status), details.detail, answer.further)


def _refusal(
    request: Request, status: HTTPStatus, text: str, headers: dict[str, str]
) -> HTMLResponse:
    shown = page(request, "error.html", status, title=status.phrase, text=text)
    shown.headers.update(headers)
    return shown


def page(
    request: Request, template: str, status: HTTPStatus = HTTPStatus.OK, **values: Any
) -> HTMLResponse:
    """Render a template, which may be a part of a page, with `values`."""
    caller = caller_of(request)
    text = (
        environment()
        .get_template(template)
        .render(
            values,
            path=request.url.path,
            assets=f"/assets/{version()}",
            may_submit=caller.scope != "read",
            is_signed_in=caller.token_id is not None,
        )
    )
    return HTMLResponse(text, status, headers=HEADERS)


@cache
def environment() -> Environment:
    """Return the templates, which escape every value and reject missing ones."""
    made = Environment(
        loader=PackageLoader("tilewise.service.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        speed=speed, share=share, times=times, closely=closely, seconds=seconds, micros=micros,
        ago=ago, short=short, value=value, code=code, describe_schema=describe_schema,
    )  # fmt: skip
    return made


def _formatted(form: str) -> Callable[[float | None], str]:
    """A filter for numbers; None is nothing."""
    return lambda value: "" if value is None else form.format(value)


speed, share = _formatted("{:.1f}"), _formatted("{:.1%}")
times, closely = _formatted("{:.2f}x"), _formatted("{:.3f}x")


def micros(time_us: float | None) -> str:
    """Return a time in microseconds with significant digits and a unit."""
    return "" if time_us is None else duration(time_us)


def seconds(value: float | None) -> str:
    """Return a duration such as `1 h 4 min`."""
    if value is None:
        return ""
    if value < 60:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    minutes = int(value // 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def ago(when: str | datetime | None) -> str:
    """Return how long ago a moment was."""
    if when is None:
        return ""
    moment = datetime.fromisoformat(when) if isinstance(when, str) else when
    past = (now() - moment.astimezone(UTC)).total_seconds()
    days = int(past // 86400)
    if days:
        return "1 day ago" if days == 1 else f"{days} days ago"
    return f"{seconds(max(0.0, past))} ago"


def value(given: object) -> str:
    """Return a parameter's value as JSON has it, a register tile in words."""
    if isinstance(given, TilePoint):
        return given.description
    return str(given).lower() if isinstance(given, bool) else str(given)


def code(text: str) -> Markup:
    """Return a docstring's text as HTML: text between backticks as code."""
    parts = text.replace("``", "`").split("`")
    made = [Markup("<code>{}</code>").format(part) if index % 2 and index + 1 < len(parts)
            else escape("`" * (index % 2) + part) for index, part in enumerate(parts)]  # fmt: skip
    return Markup("").join(made)


def short(toolchain: str) -> str:
    """Return a toolchain's generator hash, which differs most often."""
    return toolchain.rpartition("generator ")[2] or toolchain
