import json
from datetime import UTC, datetime

import httpx
import pytest

from tests.tilewise.client import documents
from tests.tilewise.client.documents import PROBLEM
from tilewise import Client, MissingError, TilewiseError
from tilewise.client import Event, Job, JobEnded, Result, TrialEnded, api
from tilewise.kernels.problem import parse_problem
from tilewise.schema.base import read


class FakeService:
    """Runs job 1 for a few trials already; then takes what is asked for."""

    def __init__(self, ends: str = "done") -> None:
        self.posted: list[dict[str, object]] = []
        self.keys: list[str] = []
        self.ends = ends

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            self.posted.append(json.loads(request.content))
            self.keys.append(request.headers["Idempotency-Key"])
            return httpx.Response(202, json=self.job("running"))
        if request.url.path == "/v1/schedules":
            return httpx.Response(200, json=documents.result(elapsed_s=float(len(self.posted))))
        return httpx.Response(200, text=documents.stream(0, 1, end=self.job(self.ends)))

    def job(self, state: str) -> documents.Json:
        asked = (4, 9)[len(self.posted) - 1]
        trials = {**documents.COUNTS, "asked": asked}
        return documents.job(id=len(self.posted), state=state, trials=trials, error="it")


@pytest.mark.parametrize(("trials", "asked"), [(4, 1), (3, 1), (9, 2)])
def test_what_a_joined_job_leaves_out_is_asked_for_again(trials: int, asked: int) -> None:
    service, seen = FakeService(), list[Event]()
    with Client("http://fake", httpx.MockTransport(service)) as client:
        found = client.tune(PROBLEM, seen.append, trials=trials)
    assert found.elapsed_s == asked
    assert [one["trials"] for one in service.posted] == [trials] * asked
    assert len(set(service.keys)) == asked, "each request has a key of its own"
    assert [type(one) for one in seen] == [TrialEnded, TrialEnded, JobEnded] * asked


def test_a_job_that_fails_is_an_error_with_its_reason() -> None:
    transport = httpx.MockTransport(FakeService(ends="failed"))
    with (
        Client("http://fake", transport) as client,
        pytest.raises(TilewiseError, match="1 failed: it"),
    ):
        client.tune(PROBLEM, trials=4)


def test_pages_are_followed_with_their_filters() -> None:
    asked: list[str] = []

    def pages(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.query.decode())
        number = len(asked)
        following = f"/v1/trials?cursor={number}" if number < 3 else None
        page = [documents.stored_trial(number)]
        return httpx.Response(200, json={"trials": page, "next": following})

    with Client("http://fake", httpx.MockTransport(pages)) as client:
        found = list(client.stored_trials(PROBLEM, state="timed"))
    assert [one.number for one in found] == [1, 2, 3]
    first = httpx.QueryParams(asked[0])
    assert (first["problem"], first["state"]) == (PROBLEM, "timed") and "target" not in first
    assert asked[1:] == ["cursor=1", "cursor=2"]


A, B, C = (f"matmul:m={n},n=4,k=4,dtype=f32" for n in (1, 2, 3))


def test_many_problems_are_looked_up_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "MOST_PROBLEMS", 2)
    bodies = []

    def look_up(request: httpx.Request) -> httpx.Response:
        bodies.append(body := json.loads(request.content))
        assert (request.url.path, body["target"]) == ("/v1/schedules/lookup", "t")
        found = [{"problem": p, "key": "k",
                  "schedule": documents.result(problem=p) if p != B else None}
                 for p in body["problems"]]  # fmt: skip
        return httpx.Response(200, json={"target": "t", "schedules": found})

    a, c = (parse_problem(one).key for one in (A, C))
    known = {a: {"cpu": "1"}, c: {"cpu": "3"}, "absent": {"cpu": "4"}}
    with Client("http://fake", httpx.MockTransport(look_up)) as client:
        found = client.look_up([A, B, C], "t", files=["cpu"], known=known)
    assert [one.problem for one in found] == [A, B, C]
    assert [one.result and one.result.problem for one in found] == [A, None, C]
    assert [len(body["problems"]) for body in bodies] == [2, 1]
    assert [body["known"] for body in bodies] == [
        {a: {"cpu": "1"}}, {c: {"cpu": "3"}}
    ], "each request has the tags of its own problems"  # fmt: skip
    assert all(body["files"] == ["cpu"] for body in bodies)


def test_results_are_frozen_values_that_keep_what_the_service_said() -> None:
    source = documents.result(something_new={"x": 1})
    found = read(Result, source)
    assert found.document == source
    assert found.best.interval == (4.5, 5.5) and found.peers["openblas"].gflops == 4.0
    assert found.trials.ended == 4 and found.proof and found.proof.executed
    assert found.created == datetime(2026, 11, 23, 10, tzinfo=UTC)
    assert found == read(Result, documents.result()), "what is unknown makes no difference"
    assert "something_new" not in repr(found)
    with pytest.raises(AttributeError):
        found.key = ""  # type: ignore[misc]


def test_an_older_service_says_less() -> None:
    source = documents.result()
    del source["match"], source["created"]
    assert read(Result, source).match is None
    job = documents.job()
    del job["phase"]
    assert read(Job, job).phase is None and not read(Job, job).has_ended


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"key": 5}, "Result.key is 5, not of type str"),
        ({"best": None}, "Result.best is None, not of type dict"),
        ({"best": {**documents.BEST, "gflops": "fast"}}, "Result.best.gflops is 'fast'"),
        ({"best": {"hash": "h"}}, "Result.best has no gflops, interval, peak_fraction, steps"),
        ({"created": "soon"}, "Result.created is 'soon', not a moment"),
        ({"complete": 1}, "Result.complete is 1, not of type bool"),
    ],
)
def test_an_answer_of_another_form_is_an_error_that_names_the_field(
    change: documents.Json, said: str
) -> None:
    with pytest.raises(TilewiseError, match=f"unexpected answer from the service: {said}"):
        read(Result, documents.result(**change))


def test_a_text_says_what_it_belongs_to() -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        headers = {"ETag": '"abc"', "Tilewise-Match": "processor", "Tilewise-Target": "cpu:x"}
        if request.headers.get("If-None-Match") == '"abc"':
            return httpx.Response(304, headers=headers)
        return httpx.Response(200, text="it", headers=headers)

    with Client("http://fake", httpx.MockTransport(answer)) as client:
        text = client.script(PROBLEM, match="nearest")
        again = client.text("/v1/schedules/k/script?target=t&flavor=cpu", known="abc")
    assert (text.text, text.etag, text.match, text.target) == ("it", "abc", "processor", "cpu:x")
    assert again.text is None and again.etag == "abc"
    assert asked[0].url.params["match"] == "nearest"
    assert str(asked[1].url).endswith("/script?target=t&flavor=cpu")


def test_a_token_is_shown_and_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []

    def answer(request: httpx.Request) -> httpx.Response:
        shown.append(request.headers.get("Authorization"))
        return httpx.Response(401, json={"detail": "who are you?"})

    transport = httpx.MockTransport(answer)
    monkeypatch.setenv("TILEWISE_TOKEN", "tw_environment")
    for token in (None, "tw_given", ""):
        with Client("http://fake", transport, token=token) as client:
            with pytest.raises(TilewiseError, match=r"who are you.*TILEWISE_TOKEN") as caught:
                client.job(1)
            assert "tw_" not in str(caught.value) + repr(client)
    assert shown == ["Bearer tw_environment", "Bearer tw_given", None]
    for token in ("a b", "a\nb", "é"):
        with pytest.raises(TilewiseError, match="is not a token") as caught:
            Client("http://fake", token=token)
        assert token not in str(caught.value)


def test_a_redirect_is_not_followed() -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        return httpx.Response(307, headers={"Location": "http://elsewhere/"})

    transport = httpx.MockTransport(answer)
    with (
        Client("http://fake", transport, token="t") as client,
        pytest.raises(TilewiseError, match="307"),
    ):
        client.job(1)
    assert asked == ["fake"]


@pytest.mark.parametrize("method", ["script", "kernel", "object_files"])
def test_what_is_missing_of_a_problem_is_an_error_with_the_problem_not_its_key(method: str) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        key = request.url.path.split("/")[3]
        said = f"no schedule of a problem with the key {key} is stored for cpu:znver4,threads=1"
        return httpx.Response(404, json={"detail": said})

    spelled = "matmul: k=4, m=1, n=4, dtype=f32"
    with (
        Client("http://fake", httpx.MockTransport(refuse)) as client,
        pytest.raises(MissingError) as raised,
    ):
        getattr(client, method)(spelled)
    assert str(raised.value) == f"no schedule of {A} is stored for cpu:znver4,threads=1"
