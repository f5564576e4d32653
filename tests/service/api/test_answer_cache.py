import sqlite3

import pytest

from tests.service.conftest import PROBLEM
from tilewise.kernels.problem import parse_problem
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
