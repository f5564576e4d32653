"""Every call of the HTTP API, written once for `AsyncClient` and `Client`."""

import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import Any, TypedDict, Unpack
from urllib.parse import quote

import httpx

from tilewise.client import events
from tilewise.client.events import (
    BrokenStreamError,
    Event,
    JobEnded,
    JobSubmitted,
    PhaseReached,
    PlanEvent,
    TrialEnded,
)
from tilewise.client.transport import (
    ApiRequest,
    PagePath,
    Service,
    is_accepted,
    json_of,
    objects_of,
)
from tilewise.errors import BadInputError, MissingError, TilewiseError
from tilewise.kernels.errors import KernelsError
from tilewise.kernels.problem import Accuracy, parse_any
from tilewise.kernels.quoting import one_line
from tilewise.schema.base import Json, KeyMatch, Kind, Match, read
from tilewise.schema.modules import ImportedModule, Model, ModelPlan, OpScript
from tilewise.schema.ranges import StoredRange
from tilewise.schema.results import Found, Job, ObjectFiles, StoredResult, StoredTrial, Text, Trial
from tilewise.schema.status import NewToken, Readiness, SuiteReport, Targets, Token
from tilewise.search.networks.request import ModelOptions, PlanOptions
from tilewise.search.records import TuneOptions

OnEvent = Callable[[Event], None]
OnWait = Callable[[], None]

OF_MODULES = {"Content-Type": "text/x-mlir"}
PLANS = "/v1/plans"
MOST_PROBLEMS = 1000  # of one look-up
POLL_S = 1.0
PLAIN = {"Accept-Encoding": "identity"}  # a proxy that compresses changes the tag of a text


@dataclass(frozen=True, kw_only=True)
class Result(StoredResult):
    """The best schedule of a problem, which a notebook shows as a card.

    `stale` marks another toolchain than the service's, `complete` a budget that was spent.
    `previous` is the newest result of the same work that is not the best; None in look-ups.
    """

    def _repr_html_(self) -> str:
        from tilewise.service.plots.nest import result_card

        return result_card(self.document)


class JobOptions(TuneOptions, total=False):
    """The fields of `POST /v1/jobs` except the problem; missing ones take its defaults."""

    target: str
    again: bool


class OpOptions(TypedDict, total=False):
    """The parameters of `POST /v1/problems/script`; missing ones take its defaults."""

    place: str
    target: str
    match: KeyMatch
    with_payload: bool
    accuracy: Accuracy


class Api:
    """The calls of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def close(self) -> None:
        """Close the connections."""
        await self._service.close()

    async def submit(
        self, problem: str, **options: Unpack[JobOptions]
    ) -> Result | StoredRange | Job:
        """Request a search; return the stored result or range if there is one, else the job."""
        given = {"problem": problem, **options}
        answer = await self._service.json("POST", "/v1/jobs", json=given, headers=_new_key())
        if "state" in answer:
            return read(Job, answer)
        return read(StoredRange, answer) if "variants" in answer else read(Result, answer)

    async def tune(
        self, problem: str, on_event: OnEvent | None = None, **options: Unpack[JobOptions]
    ) -> Result:
        """Request a search and wait for its result; `on_event` is called for each event."""
        if ".." in problem:
            raise BadInputError(f"{one_line(problem)} is a range of sizes; call tune_range")
        return read(Result, await self._tuned(problem, on_event, options))

    async def tune_range(
        self, problem: str, on_event: OnEvent | None = None, **options: Unpack[JobOptions]
    ) -> StoredRange:
        """Request the variants of a range of sizes and wait for them; see `tune`."""
        return read(StoredRange, await self._tuned(problem, on_event, options))

    async def _tuned(self, problem: str, on_event: OnEvent | None, options: JobOptions) -> Json:
        """Return what is stored of a problem or a range once it has the trials requested."""
        while isinstance(answer := await self.submit(problem, **options), Job):
            if on_event is not None:
                on_event(JobSubmitted(answer))
            job = await self._ended(answer, on_event)
            if job.state != "done":
                raise TilewiseError(f"job {job.id} {job.state}: {job.error or ''}")
            is_long = job.trials.asked >= options.get("trials", 0)
            keeps_own = answer.state == "running"  # trials and peers, where it was joined
            may_do_less = keeps_own and ("trials" not in options or options.get("peers"))
            if options.get("again") or (is_long and not may_do_less):
                return await self._stored(problem, job.target, options.get("cache"), "exact")
            # The request joined a job that does less; another one goes on from its trials.
        return answer.document

    async def _ended(self, job: Job, on_event: OnEvent | None) -> Job:
        """Follow a job to its end by events, if there are any."""
        follower = events.of_job(job.id)
        if "events" in job.links:  # an older service has none
            try:
                async for event in self._service.events(follower):
                    if on_event is not None:
                        on_event(event)
                    if isinstance(event, JobEnded):
                        return event.job
            except BrokenStreamError:  # as behind a proxy that lets no stream through
                pass
        return await self._polled(job.id, follower.after, on_event)

    async def _polled(self, job_id: int, after: int, on_event: OnEvent | None) -> Job:
        """Poll a job to its end, with the same events as of a stream, after trial `after`."""
        page = PagePath.first("trials", f"/v1/jobs/{job_id}/trials")
        phase, ended = None, 0
        while True:
            job = await self._service.outlasting(partial(self.job, job_id))
            if on_event is not None:
                # The job was read first: once it has ended, its trials are all there.
                if job.trials.ended != ended:
                    ended = job.trials.ended
                    page, trials = await self._service.outlasting(partial(self._trials_from, page))
                    for trial in trials:
                        if trial.number > after:
                            after = trial.number
                            on_event(TrialEnded(trial))
                if job.phase is not None and job.phase != phase:
                    phase = job.phase
                    on_event(PhaseReached(phase))
                if job.has_ended:
                    on_event(JobEnded(job))
            if job.has_ended:
                return job
            await self._service.sleep(POLL_S)

    async def _trials_from(self, page: PagePath) -> tuple[PagePath, list[Trial]]:
        """Return the last page, which alone can grow, and all trials from `page` on."""
        trials = list[Trial]()
        while True:
            found = await self._service.page(page)
            trials += [read(Trial, source) for source in found.items]
            if found.following is None:
                return page, trials
            page = found.following

    def events(self, job_id: int, after: int | None = None) -> AsyncIterator[Event]:
        """Yield the events of a job, from its first trial, or the one after `after`, to its end.

        Reconnects where a stream breaks, so that each trial comes once.
        """
        return self._service.events(events.of_job(job_id, after))

    async def job(self, job_id: int) -> Job:
        """Return one job."""
        return read(Job, await self._service.json("GET", f"/v1/jobs/{job_id}"))

    def jobs(self, state: str | None = None) -> AsyncIterator[Job]:
        """Yield every job, or those of a state, newest first."""
        return self._listed(Job, PagePath.first("jobs", "/v1/jobs", state=state))

    async def cancel(self, job_id: int) -> Job:
        """Cancel a job; what it has timed stays stored."""
        return read(Job, await self._service.json("DELETE", f"/v1/jobs/{job_id}"))

    async def schedule(
        self, problem: str, target: str = "host", cache: str | None = None, match: Match = "exact"
    ) -> Result:
        """Return the stored best of a problem; for hot caches unless `cache` is given.

        With `match="nearest"` it may be of a processor whose kernels the target can run; the
        result's `match` says what differs. With `match="range"` the variant of a tuned range that
        contains the problem answers if nothing else is stored.
        """
        return read(Result, await self._stored(problem, target, cache, match))

    async def range(
        self, problem: str, target: str = "host", cache: str | None = None, match: Match = "exact"
    ) -> StoredRange:
        """Return the stored variants of a range; with `match="range"` of one that contains it."""
        return read(StoredRange, await self._stored(problem, target, cache, match))

    async def _stored(self, problem: str, target: str, cache: str | None, match: Match) -> Json:
        params = _given(problem=problem, target=target, cache=cache, match=_unusual(match))
        return await self._service.json("GET", "/v1/schedules", params=params)

    async def script(
        self,
        problem: str,
        target: str = "host",
        flavor: str = "cpu",
        on_wait: OnWait | None = None,
        match: KeyMatch = "exact",
    ) -> Text:
        """Return the proven transform script of a problem's stored best.

        Waits if the service has to prove it first; `on_wait` is called once if so.
        """
        params = _given(target=target, flavor=flavor, match=_unusual(match))
        return _text(await self._file(problem, "script", params, on_wait))

    async def kernel(
        self,
        problem: str,
        target: str = "host",
        on_wait: OnWait | None = None,
        match: KeyMatch = "exact",
    ) -> Text:
        """Return the kernel of a problem's stored best, as a Python module that runs on its own.

        Waits if the service has to print it first; `on_wait` is called once if so.
        """
        params = _given(target=target, match=_unusual(match))
        return _text(await self._file(problem, "kernel", params, on_wait))

    async def object_files(
        self,
        problem: str,
        target: str = "host",
        on_wait: OnWait | None = None,
        match: KeyMatch = "exact",
        cache: str | None = None,
    ) -> ObjectFiles:
        """Return the kernel of a problem's stored best as machine code; waits as `kernel`.

        `cache` None prefers hot.
        """
        params = _given(target=target, format="json", match=_unusual(match), cache=cache)
        response = await self._file(problem, "kernel", params, on_wait)
        return read(ObjectFiles, json_of(response, self._service.url))

    async def _file(
        self, problem: str, kind: str, params: Json, on_wait: OnWait | None
    ) -> httpx.Response:
        """Return a file of a problem; errors name the problem instead of its key."""
        key = _key(problem)
        try:
            path = f"/v1/schedules/{key}/{kind}"
            return await self._service.made(ApiRequest("GET", path, params, headers=PLAIN), on_wait)
        except MissingError as error:
            name = parse_any(problem).canonical
            text = str(error).replace(f"a problem with the key {key}", name).replace(key, name)
            raise MissingError(text) from error

    async def text(self, path: str, known: str | None = None) -> Text:
        """Return the script or kernel at a path from a look-up, unless its tag is `known`."""
        headers = PLAIN if known is None else {**PLAIN, "If-None-Match": f'"{known}"'}
        return _text(await self._service.made(ApiRequest("GET", path, headers=headers), None))

    async def import_module(
        self,
        module: str | bytes,
        on_wait: OnWait | None = None,
        accuracy: Accuracy = "standard",
        dim: Sequence[str] = (),
    ) -> ImportedModule:
        """Return the problems of an MLIR module, text or bytecode; waits as `kernel`.

        With `accuracy="strict"` they allow direct methods alone. `dim` has the sizes of dynamic
        dims, such as `batch=8`.
        """
        params = {"accuracy": accuracy} | ({"dim": [*dim]} if dim else {})
        request = _of_module("/v1/problems/parse", module, params)
        return await self._of_module(ImportedModule, request, on_wait)

    async def op_script(
        self, module: str | bytes, on_wait: OnWait | None = None, **options: Unpack[OpOptions]
    ) -> OpScript:
        """Return the proven script of one op of an MLIR module; waits as `kernel`.

        `place` is as `import_module` has it, or the number of the op among the problems.
        """
        request = _of_module("/v1/problems/script", module, {**options})
        return await self._of_module(OpScript, request, on_wait)

    async def submit_model(
        self, module: str | bytes, on_wait: OnWait | None = None, **options: Unpack[ModelOptions]
    ) -> Model:
        """Request a search of every problem of an MLIR module without a stored result."""
        request = _of_module("/v1/models", module, {**options})
        return await self._of_module(Model, request, on_wait)

    async def model(self, model_id: int) -> Model:
        """Return one model, with the state of each of its problems."""
        return read(Model, await self._service.json("GET", f"/v1/models/{model_id}"))

    async def submit_plan(
        self, module: str | bytes, on_wait: OnWait | None = None, **options: Unpack[PlanOptions]
    ) -> ModelPlan:
        """Request a plan of an MLIR module, with a key that makes it safe to repeat.

        Problems without a stored result get jobs. A worker makes the plan once they have ended.
        """
        request = _of_module(PLANS, module, {**options}, _new_key())
        return await self._of_module(ModelPlan, request, on_wait)

    async def _of_module(
        self, kind: type[Kind], request: ApiRequest, on_wait: OnWait | None
    ) -> Kind:
        """Return the answer to a module."""
        response = await self._service.made(request, on_wait, self._is_being_read)
        return read(kind, json_of(response, self._service.url))

    def _is_being_read(self, response: httpx.Response) -> bool:
        """Return whether a module is still being read, so that it has no number yet."""
        return is_accepted(response) and "id" not in json_of(response, self._service.url)

    async def plan(self, plan_id: int) -> ModelPlan:
        """Return one plan with the states of its problems, and its choice once made."""
        return read(ModelPlan, await self._service.json("GET", f"{PLANS}/{plan_id}"))

    async def cancel_plan(self, plan_id: int) -> ModelPlan:
        """Cancel a plan; its jobs continue."""
        return read(ModelPlan, await self._service.json("DELETE", f"{PLANS}/{plan_id}"))

    def plans(self, state: str | None = None) -> AsyncIterator[ModelPlan]:
        """Yield every plan, or those of a state, newest first, without their problems."""
        return self._listed(ModelPlan, PagePath.first("plans", PLANS, state=state))

    def plan_events(self, plan_id: int, after: int | None = None) -> AsyncIterator[PlanEvent]:
        """Yield the events of a plan, from its first problem, or after `after`, to its end.

        Reconnects where a stream breaks, so that each problem comes once.
        """
        return self._service.events(events.of_plan(plan_id, after))

    async def plan_script(self, plan_id: int) -> Text:
        """Return the proven transform script that packs the module of a plan that is done."""
        return await self.text(f"{PLANS}/{plan_id}/script")

    async def plan_runner(self, plan_id: int) -> Text:
        """Return a plan that is done as a Python module, whose `load` gives the network."""
        return await self.text(f"{PLANS}/{plan_id}/runner")

    def trials(self, job_id: int, state: str | None = None) -> AsyncIterator[Trial]:
        """Yield the trials of a job, by number; `state` selects timed, pruned or failed ones."""
        first = PagePath.first("trials", f"/v1/jobs/{job_id}/trials", state=state)
        return self._listed(Trial, first)

    def stored_trials(
        self, problem: str | None = None, target: str | None = None, state: str | None = None
    ) -> AsyncIterator[StoredTrial]:
        """Yield the trials of all jobs, or those of a problem, a target, a state; oldest first."""
        first = PagePath.first("trials", "/v1/trials", problem=problem, target=target, state=state)
        return self._listed(StoredTrial, first)

    async def look_up(
        self,
        problems: Sequence[str],
        target: str = "host",
        cache: str | None = None,
        match: Match = "exact",
        files: Sequence[str] = (),
        known: Mapping[str, Mapping[str, str]] | None = None,
        predict: bool = False,
        trials: int = 0,
    ) -> list[Found]:
        """Return what is stored of each problem, in their order, in as few requests as possible.

        `cache` None prefers hot; `files` are flavors of scripts, and `kernel`, whose tags and paths
        to return. `known` has tags of the caller's files by problem key and kind; where none
        differs, the answer is `unchanged`. With `predict`, problems that nothing is stored of have
        a schedule that is `predicted`; with `trials`, a `job` that searches it.
        """
        found: list[Found] = []
        for start in range(0, len(problems), MOST_PROBLEMS):
            wanted = list(problems[start : start + MOST_PROBLEMS])
            keys = {_key(problem) for problem in wanted} if known else set()
            tags = {key: dict(kinds) for key, kinds in (known or {}).items() if key in keys}
            body = _given(
                problems=wanted,
                target=target,
                cache=cache,
                match=_unusual(match),
                files=list(files) or None,
                known=tags or None,
                predict=predict or None,
                trials=trials or None,
            )
            answer = await self._service.json("POST", "/v1/schedules/lookup", json=body)
            found += map(read_found, objects_of(answer, "schedules"))
        return found

    async def store_report(self, report: Json) -> SuiteReport:
        """Store what `tilewise bench --json` prints; storing it again changes nothing."""
        return read(SuiteReport, await self._service.json("POST", "/v1/suite-reports", json=report))

    def suite_reports(self, suite: str | None = None) -> AsyncIterator[SuiteReport]:
        """Yield the reports of all suites or of one, without their problems, newest first."""
        return self._listed(
            SuiteReport, PagePath.first("reports", "/v1/suite-reports", suite=suite)
        )

    async def suite_report(self, number: int) -> SuiteReport:
        """Return one report, whole."""
        return read(SuiteReport, await self._service.json("GET", f"/v1/suite-reports/{number}"))

    async def targets(self) -> Targets:
        """Return the targets that live workers serve, and their machines' measured peaks."""
        return read(Targets, await self._service.json("GET", "/v1/targets"))

    async def ready(self) -> Readiness:
        """Return whether the service is ready; TilewiseError where it is not."""
        return read(Readiness, await self._service.json("GET", "/readyz", is_safe=False))

    async def tokens(self) -> list[Token]:
        """Return the tokens of the service; this needs one of scope admin."""
        answer = await self._service.json("GET", "/v1/tokens")
        return [read(Token, one) for one in objects_of(answer, "tokens")]

    async def create_token(self, name: str, scope: str, days: float | None = None) -> NewToken:
        """Create a token, which is shown this once; this needs one of scope admin."""
        body = {"name": name, "scope": scope, "days": days}
        answer = await self._service.json("POST", "/v1/tokens", json=body, is_safe=False)
        return read(NewToken, answer)

    async def revoke_token(self, name: str) -> Token:
        """Revoke a token; this needs one of scope admin."""
        path = f"/v1/tokens/{quote(name, safe='')}"
        return read(Token, await self._service.json("DELETE", path))

    async def _listed(self, kind: type[Kind], first: PagePath) -> AsyncIterator[Kind]:
        """Yield every item of all pages of a list."""
        async for source in self._service.items(first):
            yield read(kind, source)


def read_found(source: Json) -> Found:
    """Return one answer of a look-up."""
    stored = source.get("schedule")
    result = read(Result, stored) if isinstance(stored, dict) else None
    return replace(read(Found, {**source, "result": None}), result=result, document=source)


def _text(response: httpx.Response) -> Text:
    headers = response.headers
    is_known = response.status_code == HTTPStatus.NOT_MODIFIED
    return Text(
        text=None if is_known else response.text,
        etag=headers.get("ETag", "").removeprefix("W/").strip('"'),
        match=headers.get("Tilewise-Match", "exact"),
        target=headers.get("Tilewise-Target", ""),
        toolchain=headers.get("Tilewise-Toolchain", ""),
    )


def _new_key() -> dict[str, str]:
    return {"Idempotency-Key": str(uuid.uuid4())}


def _unusual(match: Match) -> str | None:
    return None if match == "exact" else match


def _given(**fields: Any) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


def _key(problem: str) -> str:
    try:
        return parse_any(problem).key
    except KernelsError as error:
        raise BadInputError(str(error)) from error


def _of_module(
    path: str, module: str | bytes, params: Json, headers: Mapping[str, str] | None = None
) -> ApiRequest:
    """Return a request whose body is a module."""
    content = module.encode() if isinstance(module, str) else module
    return ApiRequest(
        "POST", path, params, content=content, headers={**OF_MODULES, **(headers or {})}
    )
