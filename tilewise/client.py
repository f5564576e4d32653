"""A client of the HTTP API; needs httpx and nothing heavy.

with Client("http://localhost:8000") as client:
    best = client.tune("matmul:m=1024,n=512,k=2048,dtype=f32")
    script = client.script(best["problem"])
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import httpx

from kernels.errors import KernelsError
from kernels.problem import parse_problem
from kernels.quoting import one_line, quoted, without_password
from tilewise.errors import BadInputError, MissingError, TilewiseError

Json = dict[str, Any]

POLL_S = 0.5
TIMEOUT_S = 30.0
RETRY_S = 1.0  # until an answer is asked for again, where the service does not say
LONGEST_RETRY_S = 10.0
MOST_RETRIES = 4  # of a question that a busy service put off
MADE_WITHIN_S = 180.0  # a text that the service makes when it is first asked for
LARGEST_PORT = 65535
PAGE = 500  # items that are asked for at once
MOST_PROBLEMS = 1000  # that the service looks up at once
_ERRORS: dict[int, type[TilewiseError]] = {
    HTTPStatus.NOT_FOUND: MissingError,
    HTTPStatus.UNPROCESSABLE_ENTITY: BadInputError,
}


class Client:
    """Calls one service; a context manager.

    Args:
        url: where the service is, such as `http://localhost:8000`.
        transport: for tests; how requests travel.

    Every method raises `BadInputError` when the service refuses a value, `MissingError`
    when it has not what was asked for, and `TilewiseError` when it fails or is not there.
    """

    def __init__(self, url: str, transport: httpx.BaseTransport | None = None) -> None:
        self._url = _checked(url)
        self._http = httpx.Client(base_url=url, timeout=TIMEOUT_S, transport=transport)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def submit(self, problem: str, **options: Any) -> Json:
        """Ask for a search; the stored result if there is one, else the job.

        Options are the fields of `POST /v1/jobs`: target, trials, seconds, seed, sampler, peers,
        cache.
        """
        return self._json("POST", "/v1/jobs", json={"problem": problem, **options})

    def tune(
        self, problem: str, on_progress: Callable[[Json], None] | None = None, **options: Any
    ) -> Json:
        """Ask for a search and wait for its result; `on_progress` sees the job meanwhile.

        A request can join a job that runs already and asks for less; what is missing is
        asked for when it is done, and goes on from its trials.
        """
        answer = self.submit(problem, **options)
        while "state" in answer:
            job = self._wait(answer, on_progress)
            if job["trials"]["asked"] >= options.get("trials", 0):
                return self.schedule(problem, job["target"], options.get("cache"))
            answer = self.submit(problem, **options)
        return answer

    def _wait(self, job: Json, on_progress: Callable[[Json], None] | None) -> Json:
        """The job once it is done; TilewiseError when it ends otherwise."""
        while job["state"] in ("queued", "running"):
            if on_progress:
                on_progress(job)
            time.sleep(POLL_S)
            job = self.job(job["id"])
        if on_progress:
            on_progress(job)
        if job["state"] != "done":
            raise TilewiseError(f"job {job['id']} {job['state']}: {job['error'] or ''}")
        return job

    def job(self, job_id: int) -> Json:
        """One job."""
        return self._json("GET", f"/v1/jobs/{job_id}")

    def cancel(self, job_id: int) -> Json:
        """Call a job off."""
        return self._json("DELETE", f"/v1/jobs/{job_id}")

    def schedule(self, problem: str, target: str = "host", cache: str | None = None) -> Json:
        """The stored best of a problem; that for hot caches unless `cache` says which."""
        params = {"problem": problem, "target": target, **({"cache": cache} if cache else {})}
        return self._json("GET", "/v1/schedules", params=params)

    def script(
        self,
        problem: str,
        target: str = "host",
        flavor: str = "cpu",
        on_wait: Callable[[], None] | None = None,
    ) -> str:
        """The proven transform script of a problem's stored best.

        A service may have to prove it first: `on_wait` is called once if so, and the answer
        waited for.
        """
        params = {"target": target, "flavor": flavor}
        return self._made(f"/v1/schedules/{_key(problem)}/script", params, on_wait)

    def kernel(
        self, problem: str, target: str = "host", on_wait: Callable[[], None] | None = None
    ) -> str:
        """The kernel of a problem's stored best, as a Python module that runs on its own.

        A service may have to print it first: `on_wait` is called once if so, and the answer
        waited for.
        """
        params = {"target": target}
        return self._made(f"/v1/schedules/{_key(problem)}/kernel", params, on_wait)

    def jobs(self) -> Iterator[Json]:
        """Every job, newest first."""
        return self._pages("/v1/jobs", "jobs")

    def trials(self, job_id: int, state: str | None = None) -> Iterator[Json]:
        """Every trial of a job, by number; only those that are timed, pruned or failed if asked."""
        return self._pages(f"/v1/jobs/{job_id}/trials", "trials", state=state)

    def stored_trials(
        self, problem: str | None = None, target: str | None = None, state: str | None = None
    ) -> Iterator[Json]:
        """Every trial of all jobs, or those of a problem, a target, a state; oldest first."""
        return self._pages("/v1/trials", "trials", problem=problem, target=target, state=state)

    def look_up(self, problems: Sequence[str], target: str = "host") -> dict[str, Json | None]:
        """The stored best of each problem, None where there is none; keys as they were given."""
        found: dict[str, Json | None] = {}
        for start in range(0, len(problems), MOST_PROBLEMS):
            asked = problems[start : start + MOST_PROBLEMS]
            body = {"problems": list(asked), "target": target}
            answer = self._json("POST", "/v1/schedules/lookup", json=body)
            found |= zip(asked, (one["schedule"] for one in answer["schedules"]), strict=True)
        return found

    def _pages(self, path: str, name: str, **filters: str | None) -> Iterator[Json]:
        """Every item of all pages; the path of a page after the first has the filters in it."""
        given = {key: value for key, value in filters.items() if value is not None}
        page = self._json("GET", path, params={**given, "limit": PAGE})
        yield from page[name]
        while page["next"]:
            page = self._json("GET", page["next"])
            yield from page[name]

    def _made(self, path: str, params: Json, on_wait: Callable[[], None] | None) -> str:
        """A text once the service has made it; 202 says that it is being made."""
        end = time.monotonic() + MADE_WITHIN_S
        response = self._call("GET", path, params=params)
        if response.status_code == HTTPStatus.ACCEPTED and on_wait:
            on_wait()
        while response.status_code == HTTPStatus.ACCEPTED:
            pause = _retry_after(response) or RETRY_S
            if time.monotonic() + pause > end:
                raise TilewiseError(
                    f"{self._url}{path} was not made within {MADE_WITHIN_S:.0f} s; "
                    "the service goes on, so ask again later"
                )
            time.sleep(pause)
            response = self._call("GET", path, params=params)
        return response.text

    def _json(self, method: str, path: str, **options: Any) -> Json:
        response = self._call(method, path, **options)
        try:
            answer = response.json()
        except (ValueError, RecursionError) as error:
            raise TilewiseError(f"{self._url}{path} did not answer with JSON") from error
        if not isinstance(answer, dict):
            raise TilewiseError(f"{self._url}{path} did not answer with an object")
        return answer

    def _call(self, method: str, path: str, **options: Any) -> httpx.Response:
        """A successful answer.

        A GET that a busy service puts off is asked again. Nothing is sent again whose answer
        was lost: a POST may have been carried out.
        """
        response = self._send(method, path, **options)
        for _ in range(MOST_RETRIES if method == "GET" else 0):
            pause = _retry_after(response)
            if response.status_code != HTTPStatus.SERVICE_UNAVAILABLE or pause is None:
                break
            time.sleep(pause)
            response = self._send(method, path, **options)
        if response.is_success:
            return response
        kind = _ERRORS.get(response.status_code, TilewiseError)
        raise kind(_detail(response))

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            return self._http.request(method, path, **options)
        except httpx.InvalidURL as error:
            raise BadInputError(f"server {self._url!r} is not a URL: {error}") from error
        except httpx.HTTPError as error:
            raise TilewiseError(f"no answer from {self._url}: {error}") from error
        except UnicodeEncodeError as error:
            part = error.object[error.start : error.end]
            raise BadInputError(f"{quoted(part)} is no text that can be sent") from error


def _checked(url: str) -> str:
    """The URL as messages show it; BadInputError if no service can be there."""
    shown = quoted(without_password(url))
    try:
        parsed = httpx.URL(url)
        is_host = bool(parsed.host and parsed.host.encode("idna"))
    except (httpx.InvalidURL, UnicodeError) as error:
        raise BadInputError(f"server {shown} is not a URL: {one_line(error)}") from error
    if parsed.scheme not in ("http", "https") or not is_host:
        raise BadInputError(f"server {shown} is not a URL; write http://HOST:PORT")
    if parsed.port is not None and not 0 < parsed.port <= LARGEST_PORT:
        raise BadInputError(
            f"server {shown}: port={parsed.port} is out of range; give 1 to {LARGEST_PORT}"
        )
    return str(parsed.copy_with(userinfo=b""))


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds after which the service wants to be asked again, if it says so; at most some."""
    said = response.headers.get("Retry-After")
    if said is None:
        return None
    # A date, which HTTP also allows, is of another clock.
    whole = said.isascii() and said.isdigit()
    return min(float(said), LONGEST_RETRY_S) if whole else RETRY_S


def _key(problem: str) -> str:
    try:
        return parse_problem(problem).key
    except KernelsError as error:
        raise BadInputError(str(error)) from error


def _detail(response: httpx.Response) -> str:
    """What the service said, on one line."""
    try:
        body = response.json()
    except (ValueError, RecursionError):
        body = None
    detail = body.get("detail") if isinstance(body, Mapping) else None
    if isinstance(detail, str):
        return one_line(detail)
    return f"{response.status_code} from {response.url.copy_with(userinfo=b'')}"
