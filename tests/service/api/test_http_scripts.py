import ast
import base64
import hashlib
import json
import sqlite3
from unittest.mock import Mock

import pytest

from tests.service import fakes
from tests.service.api.answers import assert_problem, assert_refused, headers_of
from tests.service.conftest import KEY, PROBLEM
from tilewise.kernels.mlir.air import script_for
from tilewise.kernels.native.objects.object_files import Elf
from tilewise.kernels.problem import parse_problem
from tilewise.service.results import kernels, nearest, scripts

SCRIPT = f"/v1/schedules/{KEY}/script"
KERNEL = f"/v1/schedules/{KEY}/kernel"
AIR, IREE = f"{SCRIPT}?flavor=air", f"{SCRIPT}?flavor=iree"


@pytest.fixture
def looked_up(monkeypatch):
    """The calls that look a schedule or a script up in the database."""
    watched = Mock()
    for module, name in ((nearest, "find"), (scripts, "served_script")):
        watched.attach_mock(Mock(side_effect=getattr(module, name)), name)
        monkeypatch.setattr(module, name, getattr(watched, name))
    return watched.method_calls


def test_a_script_is_looked_up_once_for_all_who_fetch_it(client, tuned, looked_up):
    first = client.get(SCRIPT)
    assert first.headers["Content-Type"].startswith("text/x-mlir")
    for _ in range(5):
        again = client.get(SCRIPT)
        assert (again.status_code, again.content) == (200, first.content)
        assert headers_of(again) == headers_of(first)
    assert len(looked_up) == 1
    for query, status in (
        ("target=host", 200),
        ("target=cpu:neoverse-v2", 404),
        ("flavor=gpu", 422),
    ):
        assert client.get(f"{SCRIPT}?{query}").status_code == status


def test_a_search_that_ends_is_seen_by_the_next_request(client, submit, run, tuned, looked_up):
    before = client.get(KERNEL).headers["ETag"]
    run(submit(trials=6))
    assert client.get(KERNEL).headers["ETag"] != before
    assert len(looked_up) == 2


def test_a_commit_of_any_process_is_seen_by_the_next_request(client, url, tuned):
    assert client.get(SCRIPT).status_code == 200
    with sqlite3.connect(url.removeprefix("sqlite:///")) as other:
        other.execute("DELETE FROM script_proofs")
    other.close()
    assert client.get(SCRIPT).status_code == 404


@pytest.fixture
def attempts(monkeypatch):
    """Counts the proofs of AIR scripts, and lets a test spoil them."""
    real, spoil = scripts.attempt, {}

    def attempt(problem, **options):
        made = real(problem, **options)
        return fakes.replace(made, proof=fakes.replace(made.proof, **spoil)) if spoil else made

    calls = Mock(side_effect=attempt)
    monkeypatch.setattr(scripts, "attempt", calls)
    return calls.mock_calls, spoil


@pytest.mark.full
def test_an_air_script_is_proven_once_and_equals_the_commands(client, submit, run, tuned, attempts):
    calls, _ = attempts
    answer = client.get(AIR)
    assert answer.status_code == 200, answer.text
    assert answer.text == script_for(parse_problem(PROBLEM)).text
    assert "executed on a processor" in answer.text
    etag = answer.headers["ETag"]
    assert etag == f'"{hashlib.sha256(answer.content).hexdigest()}"'
    again = client.get(AIR, headers={"If-None-Match": etag})
    assert (again.status_code, again.content) == (304, b"")
    run(submit(trials=6))
    assert client.get(AIR).text == answer.text, "a later search does not touch it"
    assert len(calls) == 1


def test_an_air_script_that_did_not_prove_is_never_served(client, tuned, attempts):
    calls, spoil = attempts
    spoil |= {"failure": "wrong", "message": "the result is off by 1"}
    for _ in range(2):
        assert_problem(client.get(AIR), 404, "wrong: the result is off by 1")
    assert len(calls) == 1


def test_a_problem_without_an_air_script_says_which_key_stands_in_the_way(client, submit, run):
    assert_problem(client.get(AIR), 404)
    problem = parse_problem(f"{PROBLEM},bias")
    run(submit(problem.canonical))
    assert_problem(client.get(f"/v1/schedules/{problem.key}/script?flavor=air"), 404, "bias")


@pytest.fixture
def answers(monkeypatch, tmp_path):
    """Sets the answer of IREE's maker; returns what it is given."""
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path))

    def make(**document):
        sources = []
        made = json.dumps(document)
        monkeypatch.setitem(kernels.MAKERS, "iree", lambda it: sources.append(it) or made)
        return sources

    return make


def test_an_iree_script_is_made_once_and_named_by_a_tag(client, client_factory, tuned, answers):
    sources = answers(script="module {}", reason="")
    first = client.get(IREE)
    assert (first.status_code, first.text) == (200, "module {}")
    assert first.headers["Content-Type"].startswith("text/x-mlir")
    again = client_factory().get(IREE, headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert len(sources) == 1
    assert json.loads(sources[0])["problem"] == PROBLEM


def test_where_iree_is_as_fast_alone_the_times_are_told(client, tuned, answers):
    sources = answers(script=None, reason="IREE alone is faster: 3.0 us")
    for _ in range(2):
        assert_problem(client.get(IREE), 404, "IREE alone is faster: 3.0 us")
    assert len(sources) == 1


TYPES = {"object": "application/octet-stream", "bitcode": "application/octet-stream",
         "c-header": "text/x-c", "json": "application/json"}  # fmt: skip


def test_the_module_has_a_strong_etag(client, client_factory, tuned, monkeypatch):
    answer = client.get(KERNEL)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"].startswith("text/x-python")
    assert answer.headers["Tilewise-Stale"] == "false"
    assert PROBLEM in ast.get_docstring(ast.parse(answer.text))
    etag = answer.headers["ETag"]
    assert etag.startswith('"') and client.get(KERNEL).headers["ETag"] == etag

    monkeypatch.setitem(kernels.MAKERS, "module", lambda *_: pytest.fail("it is kept"))
    for sent in (etag, f'"other", {etag}', "*"):
        again = client_factory().get(KERNEL, headers={"If-None-Match": sent})
        assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", etag)


def test_what_is_not_stored_or_no_form_is_refused(client, tuned):
    assert client.get(f"/v1/schedules/{'0' * 64}/kernel").status_code == 404
    assert client.get(KERNEL, params={"target": "cpu:neoverse-v2"}).status_code == 404
    assert_refused(client.get(KERNEL, params={"target": "gpu:x"}), "target")
    assert_refused(client.get(KERNEL, params={"format": "wasm"}), "format")


def test_a_kernel_that_cannot_be_printed_says_why(client, tuned, monkeypatch):
    result = client.get("/v1/schedules", params={"problem": PROBLEM}).json()
    source = kernels.kernel_source(result, "cpu:other,threads=1")
    monkeypatch.setattr(
        "tilewise.service.api.routes.schedules.kernel_source", lambda _result, _target: source
    )
    assert_problem(client.get(KERNEL), 409, "this machine is cpu:")


def test_one_child_makes_all_forms_each_with_its_type_and_tag(
    client, client_factory, tuned, monkeypatch
):
    answers = {"object": client.get(KERNEL, params={"format": "object"})}
    monkeypatch.setitem(kernels.MAKERS, "json", lambda *_: pytest.fail("it is kept"))
    known = {"If-None-Match": answers["object"].headers["ETag"]}
    again = client_factory().get(KERNEL, params={"format": "object"}, headers=known)
    assert (again.status_code, again.content) == (304, b"")
    answers |= {form: client.get(KERNEL, params={"format": form}) for form in TYPES}
    for form, answer in answers.items():
        assert answer.status_code == 200, answer.text
        assert answer.headers["Content-Type"].startswith(TYPES[form])
        assert answer.headers["Tilewise-Stale"] == "false"
    tags = {answer.headers["ETag"] for answer in answers.values()}
    assert len(tags | {client.get(KERNEL).headers["ETag"]}) == len(TYPES) + 1
    whole = answers["json"].json()
    assert whole["problem"] == PROBLEM
    assert base64.b64decode(whole["object"]) == answers["object"].content
    assert base64.b64decode(whole["bitcode"]) == answers["bitcode"].content
    assert whole["header"] == answers["c-header"].text
    assert set(whole["proof"]) == {"max_error", "tolerance"}
    assert whole["symbol"] in Elf.read(answers["object"].content).defined
    named = answers["object"].headers["Content-Disposition"]
    assert named.startswith('attachment; filename="matmul_') and named.endswith('.o"')
