import ast

import pytest

from tests.service.conftest import PROBLEM
from tilewise.kernels.problem import parse_problem
from tilewise.service.results import kernels as kernel_modules

KEY = parse_problem(PROBLEM).key
PATH = f"/v1/schedules/{KEY}/kernel"


def test_the_module_has_a_strong_etag(client, client_factory, tuned, monkeypatch):
    answer = client.get(PATH)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"].startswith("text/x-python")
    assert answer.headers["Tilewise-Stale"] == "false"
    assert PROBLEM in ast.get_docstring(ast.parse(answer.text))
    etag = answer.headers["ETag"]
    assert etag.startswith('"') and client.get(PATH).headers["ETag"] == etag

    def printed_again(_tag, _source):
        pytest.fail("a client that has the text needs no other")

    monkeypatch.setattr("tilewise.service.api.routes.schedules.kernel_module", printed_again)
    for sent in (etag, f'"other", {etag}', "*"):
        again = client_factory().get(PATH, headers={"If-None-Match": sent})
        assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", etag)


def test_the_tag_follows_result_and_toolchain(client, client_factory, submit, run, tuned):
    first = client.get(PATH).headers["ETag"]
    newer = client_factory(toolchain="a newer one").get(PATH)
    assert newer.headers["Tilewise-Stale"] == "true"
    assert newer.headers["ETag"] != first
    run(submit(trials=6))
    assert client.get(PATH).headers["ETag"] != first


def test_what_is_not_stored_is_not_found(client, tuned):
    assert client.get(f"/v1/schedules/{'0' * 64}/kernel").status_code == 404
    assert client.get(PATH, params={"target": "cpu:neoverse-v2"}).status_code == 404
    assert client.get(PATH, params={"target": "gpu:x"}).status_code == 422


def test_a_kernel_that_cannot_be_printed_says_why(client, tuned, monkeypatch):
    result = client.get("/v1/schedules", params={"problem": PROBLEM}).json()
    source = kernel_modules.kernel_source(result, "cpu:other,threads=1")
    monkeypatch.setattr(
        "tilewise.service.api.routes.schedules.kernel_source", lambda _result, _target: source
    )
    answer = client.get(PATH)
    assert answer.status_code == 409
    assert "this machine is cpu:" in answer.json()["detail"]
