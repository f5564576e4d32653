"""`AsyncClient`, and `Client`, which runs the same calls without `async`."""

import asyncio
import functools
import inspect
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from types import GenericAlias
from typing import Any, Concatenate, ParamSpec, TypeVar, get_args, get_origin, overload

import httpx

from tilewise.client.api import Api
from tilewise.client.transport import PATIENCE_S, Service, http_client

P = ParamSpec("P")
T = TypeVar("T")


class AsyncClient(Api):
    """Calls one service; an async context manager with the methods of `Client`.

    Raises BadInputError where the service refuses a value, MissingError where the result does not
    exist, and TilewiseError where the service fails or is absent. Safe requests are repeated when
    an answer was lost or the service is busy.

    Args:
        url: such as `http://localhost:8000`.
        token: by default that of `TILEWISE_TOKEN`.
        patience_s: seconds to retry while the service is unavailable; 0 never retries.
    """

    def __init__(
        self,
        url: str,
        transport: httpx.AsyncBaseTransport | None = None,
        token: str | None = None,
        patience_s: float = PATIENCE_S,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        http = http_client(httpx.AsyncClient, url, token, transport)
        super().__init__(Service(url, http, sleep, patience_s))

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


@overload
def _blocking(
    method: Callable[Concatenate[Api, P], Coroutine[Any, Any, T]],
) -> "Callable[Concatenate[Client, P], T]": ...


@overload
def _blocking(
    method: Callable[Concatenate[Api, P], AsyncIterator[T]],
) -> "Callable[Concatenate[Client, P], Iterator[T]]": ...


def _blocking(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method of `Client` from one of `Api`."""

    @functools.wraps(method)
    def call(self: "Client", *args: Any, **options: Any) -> Any:
        made = method(self._api, *args, **options)
        return _completed(made) if inspect.iscoroutine(made) else _each(made)

    signature = inspect.signature(method)
    given = signature.return_annotation
    if get_origin(given) is AsyncIterator:
        signature = signature.replace(return_annotation=GenericAlias(Iterator, get_args(given)))
    call.__signature__ = signature  # type: ignore[attr-defined]  # of functions
    call.__qualname__ = f"Client.{method.__name__}"
    call.__module__ = __name__
    return call


def _completed(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        value: T = ended.value
        return value
    raise AssertionError("a call over a blocking transport has suspended")


def _each(items: AsyncGenerator[T, None]) -> Iterator[T]:
    """Yield from an asynchronous generator that never suspends."""
    try:
        while True:
            try:
                item = _completed(items.asend(None))
            except StopAsyncIteration:
                return
            yield item
    finally:
        _completed(items.aclose())


class Client:
    """Calls one service; a context manager. Errors, arguments and retries as of `AsyncClient`."""

    def __init__(
        self,
        url: str,
        transport: httpx.BaseTransport | None = None,
        token: str | None = None,
        patience_s: float = PATIENCE_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        http = http_client(httpx.Client, url, token, transport)
        self._api = Api(Service(url, http, sleep, patience_s))

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    close = _blocking(Api.close)
    submit = _blocking(Api.submit)
    tune = _blocking(Api.tune)
    tune_range = _blocking(Api.tune_range)
    events = _blocking(Api.events)
    job = _blocking(Api.job)
    jobs = _blocking(Api.jobs)
    cancel = _blocking(Api.cancel)
    schedule = _blocking(Api.schedule)
    range = _blocking(Api.range)
    script = _blocking(Api.script)
    kernel = _blocking(Api.kernel)
    object_files = _blocking(Api.object_files)
    text = _blocking(Api.text)
    import_module = _blocking(Api.import_module)
    op_script = _blocking(Api.op_script)
    submit_model = _blocking(Api.submit_model)
    model = _blocking(Api.model)
    submit_plan = _blocking(Api.submit_plan)
    plan = _blocking(Api.plan)
    cancel_plan = _blocking(Api.cancel_plan)
    plans = _blocking(Api.plans)
    plan_events = _blocking(Api.plan_events)
    plan_script = _blocking(Api.plan_script)
    plan_runner = _blocking(Api.plan_runner)
    trials = _blocking(Api.trials)
    stored_trials = _blocking(Api.stored_trials)
    look_up = _blocking(Api.look_up)
    store_report = _blocking(Api.store_report)
    suite_reports = _blocking(Api.suite_reports)
    suite_report = _blocking(Api.suite_report)
    targets = _blocking(Api.targets)
    ready = _blocking(Api.ready)
    tokens = _blocking(Api.tokens)
    create_token = _blocking(Api.create_token)
    revoke_token = _blocking(Api.revoke_token)
