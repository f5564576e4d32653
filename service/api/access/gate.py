"""Middleware that checks access before anything else, including cached answers."""

import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tilewise.kernels.quoting import quoted
from tilewise.schema.base import Scope as TokenScope
from tilewise.service.api.access import caller
from tilewise.service.api.access.caller import ANYONE, CALLER, NOBODY, Caller, token_in
from tilewise.service.api.access.tokens import TokenBook
from tilewise.service.api.problem_details import (
    AsPage,
    ProblemResponse,
    answer_to,
    fault_response,
    problem_response,
    wants_page,
)
from tilewise.service.errors import DatabaseError

MINUTE_S = 60.0
MOST_BUCKETS = 10_000


class RequestLimit:
    """Limit requests per minute of each client, in the memory of this process; 0 is no limit."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, who: str) -> float:
        """Take one request from a bucket: 0 if it was there, else seconds until one will be."""
        if not self._per_minute:
            return 0.0
        now_s = time.monotonic()
        rate = self._per_minute / MINUTE_S
        left, since_s = self._buckets.pop(who, (float(self._per_minute), now_s))
        left = min(float(self._per_minute), left + (now_s - since_s) * rate)
        wait_s = 0.0 if left >= 1.0 else (1.0 - left) / rate
        self._buckets[who] = (left - 1.0 if not wait_s else left), now_s
        while len(self._buckets) > MOST_BUCKETS:
            self._buckets.popitem(last=False)
        return wait_s


OPEN = ("/healthz", "/readyz")
SIGN_IN = "/sign-in"
OPEN_PAGES = (SIGN_IN, "/sign-out", "/assets/")
"""What a browser needs before anybody has signed in; nothing there is of the database."""

ADMINISTRATION = "/v1/tokens"
READING_POSTS = ("/v1/schedules/lookup", "/v1/problems/parse", "/v1/problems/script")
SCOPES: tuple[TokenScope, ...] = ("read", "submit", "admin")
RUNS = "/v1/runs/"
"""What workers say of the jobs that they were given: with tokens of those alone."""

NOTHING = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
"""No answer of the API is a page that loads or does anything."""

STREAM = "text/event-stream"

HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
_MARKS = {**HEADERS, "content-security-policy": NOTHING, "cache-control": "no-store"}


@dataclass(frozen=True)
class GateRules:
    """What the gate requires.

    Tokens are always needed beyond loopback. The limit counts per token, or per address without
    one.
    """

    needs_token: bool = False
    allowed_hosts: frozenset[str] = field(default=frozenset())
    requests_per_minute: int = 0


class Gate:
    """Check access of every request, and add security headers to responses.

    `as_page` renders an error as HTML for browsers.
    """

    def __init__(self, app: ASGIApp, rules: GateRules, as_page: AsPage) -> None:
        self._app = app
        self._rules = rules
        self._as_page = as_page
        self._limit = RequestLimit(rules.requests_per_minute)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        marked = _Marking(send)
        refusal = await self._refusal(scope)
        if refusal is not None:
            await self._shown(scope, refusal)(scope, receive, marked.send)
            return
        marked.is_allowed = partial(_is_allowed, scope)
        try:
            await self._app(scope, receive, marked.send)
        except Exception:
            if marked.is_cut_off:  # its stream ends as if its client had left
                return
            if not marked.has_begun:  # the framework's own answer would have no marks
                answer = self._shown(scope, fault_response(scope["path"]))
                await answer(scope, receive, marked.send)
            raise

    def _shown(self, scope: Scope, answer: Response) -> Response:
        """The answer in a form that the client can read."""
        accept = Headers(scope=scope).get("accept", "")
        if isinstance(answer, ProblemResponse) and wants_page(scope["path"], accept):
            scope.setdefault(CALLER, NOBODY)
            return self._as_page(Request(scope), answer)
        return answer

    async def _refusal(self, scope: Scope) -> Response | None:
        sent = _Sent(scope=scope)
        try:
            return self._misdirected(scope, sent) or await self._unknown(scope, sent)
        except DatabaseError as error:  # which alone knows the tokens
            return answer_to(scope["path"], error)

    def _misdirected(self, scope: Scope, sent: "_Sent") -> Response | None:
        """Refuse a body of two lengths or compressed, and what a web page could have sent."""
        rules, path = self._rules, scope["path"]
        if "content-length" in sent and "transfer-encoding" in sent:
            # A proxy may see another end of the body (RFC 9112, section 6.1).
            return problem_response(
                path,
                HTTPStatus.BAD_REQUEST,
                "a request has either Content-Length or Transfer-Encoding; send one of them",
                headers={"Connection": "close"},
            )
        coding = sent.get("content-encoding", "")
        if coding.strip().lower() not in ("", "identity"):
            return problem_response(
                path,
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"the body is sent with Content-Encoding: {quoted(coding)}; send it plain",
                headers={"Accept-Encoding": "identity"},
            )
        host, origin = sent.get("host", ""), sent.get("origin")
        site, mode = sent.get("sec-fetch-site"), sent.get("sec-fetch-mode")
        is_named = not rules.needs_token or rules.allowed_hosts
        if is_named and not caller.is_allowed_host(host, rules.allowed_hosts):
            detail = (
                "this service is not known by the host in the request; "
                "TILEWISE_ALLOWED_HOSTS names those that are"
            )
            return problem_response(path, HTTPStatus.MISDIRECTED_REQUEST, detail)
        if caller.is_of_another_page(scope["method"], host, origin, site, mode):
            return problem_response(
                path, HTTPStatus.FORBIDDEN, "a page of another origin may not send this request"
            )
        is_proven = origin is not None or site is not None
        if sent.has_cookie and scope["method"] not in caller.SAFE and not is_proven:
            detail = "a request with a cookie has to say of which page it is; send a token instead"
            return problem_response(path, HTTPStatus.FORBIDDEN, detail)
        return None

    async def _unknown(self, scope: Scope, sent: "_Sent") -> Response | None:
        """Refuse who shows no token, a wrong one, or one that may not, and who sends too many."""
        path = scope["path"]
        if path in OPEN:
            return None
        address = (scope.get("client") or ("",))[0]
        if path.startswith(OPEN_PAGES):
            # Each token that is typed in costs a look at the database.
            return self._too_often(path, address) if scope["method"] == "POST" else None
        if path.startswith(RUNS):
            return await self._unknown_run(scope, sent, address)
        token = sent.token
        if token is None:
            if self._rules.needs_token:
                return self._too_often(path, address) or _require_token(scope, sent)
            scope[CALLER] = ANYONE
            return _too_small(scope, ANYONE)
        book: TokenBook = scope["app"].state.services.tokens
        if not book.is_known(token):
            # Guesses are counted by where they come from: each costs a look at the database.
            slow = self._too_often(path, address)
            if slow is not None:
                return slow
        caller = await book.caller(token) if token else None
        if caller is None and sent.has_cookie:
            return _require_token(scope, sent)
        if caller is None:
            return _unauthorized(path, "the token is unknown, expired or revoked", is_wrong=True)
        scope[CALLER] = caller
        return _too_small(scope, caller) or self._too_often(path, caller.subject)

    async def _unknown_run(self, scope: Scope, sent: "_Sent", address: str) -> Response | None:
        """Refuse who shows no token of an offer; a run may say as much as it likes."""
        path, token = scope["path"], sent.token or ""
        book: TokenBook = scope["app"].state.services.run_tokens
        if not token or not book.is_known(token):
            slow = self._too_often(path, address)
            if slow is not None:
                return slow
        if not token or await book.caller(token) is None:
            return _unauthorized(path, "show the token of an offer", is_wrong=bool(token))
        scope[CALLER] = ANYONE
        return None

    def _too_often(self, path: str, who: str) -> Response | None:
        wait_s = self._limit.wait_s(who)
        if not wait_s:
            return None
        headers = {"Retry-After": str(math.ceil(wait_s))}
        detail = f"more than {self._rules.requests_per_minute} requests a minute; retry later"
        return problem_response(path, HTTPStatus.TOO_MANY_REQUESTS, detail, headers=headers)


class _Sent(Headers):
    """The headers of a request."""

    @property
    def has_cookie(self) -> bool:
        """Whether a browser shows a token by itself."""
        return "authorization" not in self and token_in(self.get("cookie", "")) is not None

    @property
    def token(self) -> str | None:
        """The token that is shown, empty where it is of another kind; None where none is."""
        if "authorization" in self:
            return bearer(self["authorization"])
        return token_in(self["cookie"]) if "cookie" in self else None


class _Marking:
    """Marks an answer as it is sent."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_stream = False
        self.is_allowed: Callable[[], Awaitable[bool]] | None = None
        self.has_begun = self.is_cut_off = False

    async def send(self, message: Message) -> None:
        """Send a message; raise OSError, as when a client has left, once the token is revoked."""
        if self._is_stream and self.is_allowed and not await self.is_allowed():
            if not self.is_cut_off:
                self.is_cut_off = True
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            raise OSError("the token of the stream was revoked or has expired")
        if message["type"] == "http.response.start":
            self.has_begun = True
            headers = MutableHeaders(raw=list(message["headers"]))
            self._is_stream = headers.get("content-type", "").startswith(STREAM)
            for name, value in _MARKS.items():  # a page of the dashboard has a policy of its own
                headers.setdefault(name, value)
            message = {**message, "headers": headers.raw}
        await self._send(message)


async def _is_allowed(scope: Scope) -> bool:
    """Whether the token of an accepted request is still valid; yes if the database is away."""
    caller, token = scope.get(CALLER), _Sent(scope=scope).token
    if caller is None or caller.token_id is None or token is None:
        return True
    book: TokenBook = scope["app"].state.services.tokens
    try:
        found = await book.caller(token)
    except DatabaseError:
        return True
    return found is not None and _too_small(scope, found) is None


def needed(method: str, path: str) -> TokenScope:
    """Return the scope that a request needs."""
    if path == ADMINISTRATION or path.startswith(f"{ADMINISTRATION}/"):
        return "admin"
    is_read = method in ("GET", "HEAD", "OPTIONS") or path in READING_POSTS
    return "read" if is_read else "submit"


def _too_small(scope: Scope, caller: Caller) -> Response | None:
    wanted = needed(scope["method"], scope["path"])
    if SCOPES.index(caller.scope) >= SCOPES.index(wanted):
        return None
    detail = f"this takes a token of scope {wanted}"
    if caller.token_id is None:
        return _unauthorized(scope["path"], detail)
    return problem_response(scope["path"], HTTPStatus.FORBIDDEN, f"{detail}, not {caller.scope}")


def _require_token(scope: Scope, sent: _Sent) -> Response:
    """Redirect a browser to the sign-in page; send a program the error."""
    path = scope["path"]
    if scope["method"] not in caller.SAFE or not wants_page(path, sent.get("accept", "")):
        return _unauthorized(path, "show a token")
    query = scope["query_string"].decode("latin-1")
    place = quote(f"{path}?{query}" if query else path, safe="")
    return RedirectResponse(f"{SIGN_IN}?next={place}", HTTPStatus.SEE_OTHER.value)


def bearer(authorization: str) -> str:
    """Return the bearer token of an `Authorization` header; empty without one."""
    kind, _, token = authorization.partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def _unauthorized(path: str, detail: str, *, is_wrong: bool = False) -> Response:
    challenge = 'Bearer realm="tilewise"' + (', error="invalid_token"' if is_wrong else "")
    headers = {"WWW-Authenticate": challenge}
    message = f"{detail}; `tilewise token create` on the service's machine makes one"
    return problem_response(path, HTTPStatus.UNAUTHORIZED, message, headers=headers)
