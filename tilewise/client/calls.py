"""What each method asks and makes of the answers, said once for both clients."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Literal, TypedDict, TypeVar
from urllib.parse import quote

import httpx

from tilewise.client.events import BrokenStreamError, Event, Follower
from tilewise.client.exchange import Ask, Exchange, Follow, ask, is_accepted, json_of, made
from tilewise.client.found import (
    Found,
    ImportedModule,
    Model,
    ObjectFiles,
    OpScript,
    Targets,
    Text,
    read_found,
    require_accuracy,
)
from tilewise.client.pages import Page, PagePath, objects_of, read_page
from tilewise.client.polling import poll
from tilewise.client.results import (
    Job,
    NewToken,
    Readiness,
    Result,
    StoredTrial,
    SuiteReport,
    Token,
    Trial,
    read,
)
from tilewise.errors import BadInputError, MissingError, TilewiseError
from tilewise.kernels.errors import KernelsError
from tilewise.kernels.problem import Accuracy, parse_problem

Json = dict[str, Any]
Value = TypeVar("Value")
Match = Literal["exact", "nearest"]
OnEvent = Callable[[Event], None]
OnWait = Callable[[], None]
Source = str | bytes
"""A module's text, or its bytecode."""

OF_MODULES = {"Content-Type": "text/x-mlir"}
PROBLEMS = "/v1/problems"
MOST_PROBLEMS = 1000  # that the service looks up at once


class JobOptions(TypedDict, total=False):
    """The fields of `POST /v1/jobs` beside the problem; those left out have its defaults."""

    target: str
    trials: int
    seconds: float | None
    seed: int
    sampler: str
    peers: bool
    cache: str
    spread: int
    again: bool


class ModelOptions(TypedDict, total=False):
    """The parameters of `POST /v1/models`; those left out have its defaults."""

    target: str
    trials: int
    seed: int
    cache: str
    accuracy: Accuracy


class OpOptions(TypedDict, total=False):
    """The parameters of `POST /v1/problems/script`; those left out have its defaults."""

    place: str
    target: str
    match: Match
    with_payload: bool
    accuracy: Accuracy


class Calls:
    """The exchanges of one service.

    Args:
        url: of the service, as messages show it.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def submit(self, problem: str, options: JobOptions) -> Exchange[Result | Job]:
        """Ask for a search, under a key that makes it safe to ask again."""
        key = {"Idempotency-Key": str(uuid.uuid4())}
        body = {"problem": problem, **options}
        answer = yield from self._json(Ask("POST", "/v1/jobs", json=body, headers=key))
        return read(Job, answer) if "state" in answer else read(Result, answer)

    def tune(self, problem: str, on_event: OnEvent | None, options: JobOptions) -> Exchange[Result]:
        """Ask for a search and follow it to its end.

        A request can join a job that runs already and asks for less; what is missing is
        asked for when it is done, and goes on from its trials.
        """
        answer = yield from self.submit(problem, options)
        while isinstance(answer, Job):
            job = yield from self._ended(answer, on_event)
            if job.state != "done":
                raise TilewiseError(f"job {job.id} {job.state}: {job.error or ''}")
            if options.get("again") or job.trials.asked >= options.get("trials", 0):
                return (yield from self.schedule(problem, job.target, options.get("cache")))
            answer = yield from self.submit(problem, options)
        return answer

    def _ended(self, job: Job, on_event: OnEvent | None) -> Exchange[Job]:
        """A job once it has ended, followed by its events as far as the service has them."""
        follower = Follower(job.id)
        if "events" in (job.document.get("links") or {}):  # those of an older service are not
            try:
                ended: Job = yield Follow(follower, on_event)
            except BrokenStreamError:  # as behind a proxy that lets no stream through
                pass
            else:
                return ended
        return (yield from poll(job.id, follower.after, on_event, self.url))

    def job(self, job_id: int) -> Exchange[Job]:
        """One job."""
        return read(Job, (yield from self._json(Ask("GET", f"/v1/jobs/{job_id}"))))

    def cancel(self, job_id: int) -> Exchange[Job]:
        """Call a job off, which twice is as good as once."""
        return read(Job, (yield from self._json(Ask("DELETE", f"/v1/jobs/{job_id}"))))

    def schedule(
        self, problem: str, target: str, cache: str | None, match: Match = "exact"
    ) -> Exchange[Result]:
        """The stored best of a problem."""
        params = _given(problem=problem, target=target, cache=cache, match=_unusual(match))
        return read(Result, (yield from self._json(Ask("GET", "/v1/schedules", params))))

    def script(
        self, problem: str, target: str, flavor: str, match: Match, on_wait: OnWait | None
    ) -> Exchange[Text]:
        """The proven transform script of a problem's stored best."""
        params = _given(target=target, flavor=flavor, match=_unusual(match))
        path = f"/v1/schedules/{_key(problem)}/script"
        return (yield from _naming(problem, self.text(path, params, None, on_wait)))

    def kernel(
        self, problem: str, target: str, match: Match, on_wait: OnWait | None
    ) -> Exchange[Text]:
        """The kernel of a problem's stored best, as a Python module."""
        params = _given(target=target, match=_unusual(match))
        path = f"/v1/schedules/{_key(problem)}/kernel"
        return (yield from _naming(problem, self.text(path, params, None, on_wait)))

    def object_files(
        self, problem: str, target: str, match: Match, on_wait: OnWait | None
    ) -> Exchange[ObjectFiles]:
        """The kernel of a problem's stored best, as machine code with its C header."""
        params = _given(target=target, format="json", match=_unusual(match))
        request = Ask("GET", f"/v1/schedules/{_key(problem)}/kernel", params)
        response = yield from _naming(problem, made(request, self.url, on_wait))
        return read(ObjectFiles, json_of(response, self.url))

    def import_module(
        self, module: Source, on_wait: OnWait | None, accuracy: Accuracy
    ) -> Exchange[ImportedModule]:
        """What a service finds in an MLIR module."""
        sent = _module(f"{PROBLEMS}/parse", module, {"accuracy": accuracy})
        answer = json_of((yield from made(sent, self.url, on_wait)), self.url)
        found = read(ImportedModule, answer)
        require_accuracy(accuracy, (one.problem for one in found.problems), self.url)
        return found

    def op_script(
        self, module: Source, on_wait: OnWait | None, options: OpOptions
    ) -> Exchange[OpScript]:
        """The script of one op of an MLIR module."""
        sent = _module(f"{PROBLEMS}/script", module, {**options})
        found = read(OpScript, json_of((yield from made(sent, self.url, on_wait)), self.url))
        require_accuracy(options.get("accuracy"), (found.problem,), self.url)
        return found

    def submit_model(
        self, module: Source, on_wait: OnWait | None, options: ModelOptions
    ) -> Exchange[Model]:
        """Ask for a search of every problem of an MLIR module."""
        sent = _module("/v1/models", module, {**options})
        response = yield from made(sent, self.url, on_wait, self._is_being_read)
        asked = read(Model, json_of(response, self.url))
        require_accuracy(options.get("accuracy"), (one.problem for one in asked.problems), self.url)
        return asked

    def _is_being_read(self, response: httpx.Response) -> bool:
        """Whether a model has no number yet, since its module is still read."""
        return is_accepted(response) and "id" not in json_of(response, self.url)

    def model(self, model_id: int) -> Exchange[Model]:
        """One model."""
        return read(Model, (yield from self._json(Ask("GET", f"/v1/models/{model_id}"))))

    def text(
        self, path: str, params: Json, known: str | None, on_wait: OnWait | None
    ) -> Exchange[Text]:
        """A script or a kernel, with what its headers say."""
        headers = {} if known is None else {"If-None-Match": f'"{known}"'}
        request = Ask("GET", path, params, headers=headers)
        response = yield from made(request, self.url, on_wait)
        return _text(response)

    def look_up(
        self,
        problems: Sequence[str],
        target: str,
        cache: str | None,
        match: Match,
        files: Sequence[str],
        known: Mapping[str, Mapping[str, str]],
    ) -> Exchange[list[Found]]:
        """What is stored of each problem, in their order, in as few requests as can be."""
        found: list[Found] = []
        for start in range(0, len(problems), MOST_PROBLEMS):
            asked = list(problems[start : start + MOST_PROBLEMS])
            body = _given(
                problems=asked,
                target=target,
                cache=cache,
                match=_unusual(match),
                files=list(files) or None,
                known=_known(asked, known) or None,
            )
            answer = yield from self._json(Ask("POST", "/v1/schedules/lookup", json=body))
            found += map(read_found, objects_of(answer, "schedules"))
        return found

    def targets(self) -> Exchange[Targets]:
        """The targets that live workers serve."""
        return read(Targets, (yield from self._json(Ask("GET", "/v1/targets"))))

    def ready(self) -> Exchange[Readiness]:
        """Whether the service is fit to work, as `/readyz` says."""
        return read(Readiness, (yield from self._json(Ask("GET", "/readyz", is_safe=False))))

    def tokens(self) -> Exchange[list[Token]]:
        """The tokens of the service, without themselves."""
        answer = yield from self._json(Ask("GET", "/v1/tokens"))
        return [read(Token, one) for one in objects_of(answer, "tokens")]

    def create_token(self, name: str, scope: str, days: float | None) -> Exchange[NewToken]:
        """A new token, which is told this once."""
        body = {"name": name, "scope": scope, "days": days}
        request = Ask("POST", "/v1/tokens", json=body, is_safe=False)
        return read(NewToken, (yield from self._json(request)))

    def revoke_token(self, name: str) -> Exchange[Token]:
        """Make a token worth nothing."""
        path = f"/v1/tokens/{quote(name, safe='')}"
        return read(Token, (yield from self._json(Ask("DELETE", path))))

    def store_report(self, report: Json) -> Exchange[SuiteReport]:
        """Store what a suite came to."""
        answer = yield from self._json(Ask("POST", "/v1/suite-reports", json=report))
        return read(SuiteReport, answer)

    def suite_report(self, number: int) -> Exchange[SuiteReport]:
        """One report, whole."""
        answer = yield from self._json(Ask("GET", f"/v1/suite-reports/{number}"))
        return read(SuiteReport, answer)

    def page(self, at: PagePath) -> Exchange[Page]:
        """One page of a list."""
        return (yield from read_page(at, self.url))

    def _json(self, request: Ask) -> Exchange[Json]:
        return json_of((yield from ask(request, self.url)), self.url)


def trial_of(source: Json) -> Trial:
    """One of `/v1/jobs/{id}/trials`."""
    return read(Trial, source)


def stored_trial_of(source: Json) -> StoredTrial:
    """One of `/v1/trials`."""
    return read(StoredTrial, source)


def suite_report_of(source: Json) -> SuiteReport:
    """One of `/v1/suite-reports`."""
    return read(SuiteReport, source)


def job_of(source: Json) -> Job:
    """One of `/v1/jobs`."""
    return read(Job, source)


def _text(response: httpx.Response) -> Text:
    headers = response.headers
    is_known = response.status_code == HTTPStatus.NOT_MODIFIED
    return Text(
        text=None if is_known else response.text,
        etag=headers.get("ETag", "").strip('"'),
        match=headers.get("Tilewise-Match", "exact"),
        target=headers.get("Tilewise-Target", ""),
        toolchain=headers.get("Tilewise-Toolchain", ""),
    )


def _naming(problem: str, exchange: Exchange[Value]) -> Exchange[Value]:
    """Run an exchange whose path has the key of a problem; an error names the problem instead."""
    try:
        return (yield from exchange)
    except MissingError as error:
        key, name = _key(problem), parse_problem(problem).canonical
        text = str(error).replace(f"a problem with the key {key}", name).replace(key, name)
        raise MissingError(text) from error


def _known(problems: Sequence[str], known: Mapping[str, Mapping[str, str]]) -> Json:
    """Of the tags that the client has those of some problems, by key."""
    keys = {_key(problem) for problem in problems} if known else set()
    return {key: dict(tags) for key, tags in known.items() if key in keys}


def _unusual(match: Match) -> str | None:
    return None if match == "exact" else match


def _given(**fields: Any) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


def _key(problem: str) -> str:
    try:
        return parse_problem(problem).key
    except KernelsError as error:
        raise BadInputError(str(error)) from error


def _module(path: str, module: Source, options: Json) -> Ask:
    """A request with a module's text or bytecode as its body."""
    content = module.encode() if isinstance(module, str) else module
    return Ask("POST", path, options, content=content, headers=OF_MODULES)
