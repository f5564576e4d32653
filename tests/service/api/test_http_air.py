import hashlib

import pytest

from tests.service import fakes
from tests.service.conftest import PROBLEM
from tilewise.kernels.mlir.air import script_for
from tilewise.kernels.problem import parse_problem
from tilewise.service.results import scripts

KEY = parse_problem(PROBLEM).key
PATH = f"/v1/schedules/{KEY}/script?flavor=air"


@pytest.fixture
def attempts(monkeypatch):
    """Counts the proofs, and lets a test spoil them."""
    calls, spoil = [], {}
    real = scripts.attempt

    def attempt(problem, **options):
        calls.append(problem)
        made = real(problem, **options)
        return fakes.replace(made, proof=fakes.replace(made.proof, **spoil)) if spoil else made

    monkeypatch.setattr(scripts, "attempt", attempt)
    return calls, spoil


@pytest.mark.full
def test_it_is_proven_once_and_is_what_the_command_prints(client, submit, run, tuned, attempts):
    calls, _ = attempts
    answer = client.get(PATH)
    assert answer.status_code == 200, answer.text
    assert answer.text == script_for(parse_problem(PROBLEM)).text
    assert "executed on a processor" in answer.text
    etag = answer.headers["ETag"]
    assert etag == f'"{hashlib.sha256(answer.content).hexdigest()}"'
    again = client.get(PATH, headers={"If-None-Match": etag})
    assert (again.status_code, again.content) == (304, b"")
    run(submit(trials=6))
    assert client.get(PATH).text == answer.text, "a later search does not touch it"
    assert len(calls) == 1


def test_one_that_did_not_prove_is_kept_as_a_failure_and_never_served(client, tuned, attempts):
    calls, spoil = attempts
    spoil |= {"failure": "wrong", "message": "the result is off by 1"}
    for _ in range(2):
        answer = client.get(PATH)
        assert answer.status_code == 404
        assert "wrong: the result is off by 1" in answer.json()["detail"]
    assert len(calls) == 1


def test_a_problem_without_an_air_script_says_which_key_stands_in_the_way(client, submit, run):
    problem = parse_problem(f"{PROBLEM},bias")
    run(submit(problem.canonical))
    answer = client.get(f"/v1/schedules/{problem.key}/script?flavor=air")
    assert answer.status_code == 404
    assert "bias" in answer.json()["detail"]


def test_what_was_never_tuned_is_not_found(client):
    assert client.get(PATH).status_code == 404
