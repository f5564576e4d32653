import asyncio
import hashlib
import sqlite3
from types import SimpleNamespace

import pytest

from tests.service.conftest import PROBLEM
from tilewise.kernels.problem import parse_problem
from tilewise.service.api import answer_cache
from tilewise.service.api.answer_cache import AnswerCache
from tilewise.service.db.changes import Changes
from tilewise.service.results import nearest, scripts

KEY = parse_problem(PROBLEM).key
SCRIPT = f"/v1/schedules/{KEY}/script"


@pytest.fixture
def looked_up(monkeypatch):
    """The keys whose schedule or script was looked up in the database."""
    keys = []

    def watched(real):
        def find(session, problem, *rest, **options):
            keys.append(problem)
            return real(session, problem, *rest, **options)

        return find

    for module, name in ((nearest, "find"), (scripts, "served_script")):
        monkeypatch.setattr(module, name, watched(getattr(module, name)))
    return keys


def headers_of(answer):
    return {name: value for name, value in answer.headers.items() if name != "x-request-id"}


def test_a_script_is_looked_up_once_for_all_who_fetch_it(client, tuned, looked_up):
    first = client.get(SCRIPT)
    assert first.headers["Content-Type"].startswith("text/x-mlir")
    for _ in range(5):
        again = client.get(SCRIPT)
        assert (again.status_code, again.content) == (200, first.content)
        assert headers_of(again) == headers_of(first)
    assert len(looked_up) == 1


def test_who_has_it_gets_no_text_and_asks_no_database(client, tuned, looked_up):
    etag = f'"{hashlib.sha256(client.get(SCRIPT).content).hexdigest()}"'
    for sent in (etag, f'"other", W/{etag}', "*"):
        answer = client.get(SCRIPT, headers={"If-None-Match": sent})
        assert (answer.status_code, answer.content, answer.headers["ETag"]) == (304, b"", etag)
        assert answer.headers["Tilewise-Stale"] == "false"
        assert "Content-Type" not in answer.headers
    other = client.get(SCRIPT, headers={"If-None-Match": '"another"'})
    assert other.status_code == 200 and other.text
    assert len(looked_up) == 1


def test_an_answer_without_text_is_kept_for_who_has_it_alone(
    client, client_factory, tuned, looked_up
):
    """CI that always sends its tag never fetches the text first."""
    text = client_factory().get(SCRIPT).text
    etag = f'"{hashlib.sha256(text.encode()).hexdigest()}"'
    looked_up.clear()
    for _ in range(3):
        assert client.get(SCRIPT, headers={"If-None-Match": etag}).status_code == 304
    assert len(looked_up) == 1
    assert client.get(SCRIPT).text == text
    assert client.get(SCRIPT, headers={"If-None-Match": etag}).status_code == 304
    assert client.get(SCRIPT).text == text
    assert len(looked_up) == 2


def test_each_query_is_an_answer_of_its_own(client, tuned):
    assert client.get(SCRIPT).status_code == 200
    assert client.get(f"{SCRIPT}?target=host").status_code == 200
    assert client.get(f"{SCRIPT}?target=cpu:neoverse-v2").status_code == 404
    assert client.get(f"{SCRIPT}?flavor=gpu").status_code == 422


def test_a_search_that_ends_is_seen_by_the_next_request(client, submit, run, tuned, looked_up):
    before = client.get("/v1/schedules/" + KEY + "/kernel").headers["ETag"]
    run(submit(trials=6))
    assert client.get("/v1/schedules/" + KEY + "/kernel").headers["ETag"] != before
    assert len(looked_up) == 2


def test_a_commit_of_any_process_is_seen_by_the_next_request(client, url, tuned):
    assert client.get(SCRIPT).status_code == 200
    with sqlite3.connect(url.removeprefix("sqlite:///")) as other:
        other.execute("DELETE FROM script_proofs")
    other.close()
    assert client.get(SCRIPT).status_code == 404


def test_what_is_not_there_is_not_remembered(client, submit, run):
    assert client.get(SCRIPT).status_code == 404
    run(submit())
    assert client.get(SCRIPT).status_code == 200


def test_a_database_counts_commits_and_not_reads(url, submit):
    changes = Changes(url)
    before = changes.number()
    assert before is not None and changes.number() == before
    submit()
    after = changes.number()
    assert after != before and changes.number() == after
    changes.close()
    assert changes.number() is None


def ask(app, path="/v1/schedules/k/script", query=b"", state=1, headers=()):
    """The status and the body that `app` answers while the database is in a state."""
    services = SimpleNamespace(changes=SimpleNamespace(number=lambda: state))
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": query,
        "headers": list(headers),
        "app": SimpleNamespace(state=SimpleNamespace(services=services)),
    }
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope, None, send))
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], body


class Counting:
    """An application that numbers its answers."""

    def __init__(self, headers=((b"etag", b'"tag"'),), status=200, pieces=1):
        self.calls = 0
        self._headers, self._status, self._pieces = list(headers), status, pieces

    async def __call__(self, _scope, _receive, send):
        self.calls += 1
        await send(
            {"type": "http.response.start", "status": self._status, "headers": self._headers}
        )
        for piece in range(self._pieces):
            more = piece + 1 < self._pieces
            body = b"%d" % self.calls
            await send({"type": "http.response.body", "body": body, "more_body": more})


@pytest.mark.parametrize(
    ("app", "path", "state"),
    [
        (Counting(headers=()), "/v1/schedules/k/script", 1),
        (Counting(headers=[(b"etag", b'W/"weak"')]), "/v1/schedules/k/script", 1),
        (Counting(status=404), "/v1/schedules/k/script", 1),
        (Counting(pieces=2), "/v1/schedules/k/script", 1),
        (Counting(), "/v1/jobs", 1),
        (Counting(), "/v1/schedules/k/script", None),  # a server, which is not asked
    ],
    ids=["no tag", "a weak tag", "no success", "a stream", "another path", "no state"],
)
def test_what_may_change_is_not_kept(app, path, state):
    cache = AnswerCache(app)
    for _ in range(2):
        ask(cache, path, state=state)
    assert app.calls == 2


def test_an_answer_belongs_to_the_state_before_it_was_made():
    """What is committed while the answer is being made may not be in it."""
    app = Counting()
    cache = AnswerCache(app)
    assert ask(cache, state=1) == (200, b"1")
    assert ask(cache, state=1) == (200, b"1")
    assert ask(cache, state=2) == (200, b"2")
    assert ask(cache, state=2) == (200, b"2")
    assert ask(cache, state=None) == (200, b"3")


def test_the_least_recently_asked_for_goes_first(monkeypatch):
    monkeypatch.setattr(answer_cache, "OVERHEAD", 9)
    app = Counting()  # each answer takes 19 bytes: 1 of its body, 9 of its headers
    cache = AnswerCache(app, most_bytes=40)
    for query in (b"a", b"b", b"a", b"c", b"a"):
        ask(cache, query=query)
    assert app.calls == 3, "a stayed"
    ask(cache, query=b"b")
    assert app.calls == 4, "b had to go"
