import ast
import base64

import pytest

from tests.service.conftest import PROBLEM
from tilewise.kernels.native.objects.object_files import Elf
from tilewise.kernels.problem import parse_problem
from tilewise.service.results import kernels as kernel_modules

KEY = parse_problem(PROBLEM).key
PATH = f"/v1/schedules/{KEY}/kernel"
TYPES = {
    "object": "application/octet-stream",
    "bitcode": "application/octet-stream",
    "c-header": "text/x-c",
    "json": "application/json",
}


def test_the_module_has_a_strong_etag(client, client_factory, tuned, monkeypatch):
    answer = client.get(PATH)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"].startswith("text/x-python")
    assert answer.headers["Tilewise-Stale"] == "false"
    assert PROBLEM in ast.get_docstring(ast.parse(answer.text))
    etag = answer.headers["ETag"]
    assert etag.startswith('"') and client.get(PATH).headers["ETag"] == etag

    def printed_again(_source):
        pytest.fail("a client that has the text needs no other")

    monkeypatch.setitem(kernel_modules.MAKERS, "module", printed_again)
    for sent in (etag, f'"other", {etag}', "*"):
        again = client_factory().get(PATH, headers={"If-None-Match": sent})
        assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", etag)


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


def test_each_form_has_its_type_and_a_tag_of_its_own(client, tuned):
    answers = {form: client.get(PATH, params={"format": form}) for form in TYPES}
    for form, answer in answers.items():
        assert answer.status_code == 200, answer.text
        assert answer.headers["Content-Type"].startswith(TYPES[form])
        assert answer.headers["Tilewise-Stale"] == "false"
    tags = {answer.headers["ETag"] for answer in answers.values()}
    assert len(tags | {client.get(PATH).headers["ETag"]}) == len(TYPES) + 1
    whole = answers["json"].json()
    assert whole["problem"] == PROBLEM
    assert base64.b64decode(whole["object"]) == answers["object"].content
    assert base64.b64decode(whole["bitcode"]) == answers["bitcode"].content
    assert whole["header"] == answers["c-header"].text
    assert set(whole["proof"]) == {"max_error", "tolerance"}
    assert whole["symbol"] in Elf.read(answers["object"].content).defined
    named = answers["object"].headers["Content-Disposition"]
    assert named.startswith('attachment; filename="matmul_') and named.endswith('.o"')


def test_one_child_makes_all_forms_and_nobody_makes_them_twice(
    client, client_factory, tuned, monkeypatch
):
    first = client.get(PATH, params={"format": "object"})

    def made_again(*_given):
        pytest.fail("what is kept is not made again")

    monkeypatch.setitem(kernel_modules.MAKERS, "json", made_again)
    assert client.get(PATH, params={"format": "c-header"}).status_code == 200
    sent = {"If-None-Match": first.headers["ETag"]}
    again = client_factory().get(PATH, params={"format": "object"}, headers=sent)
    assert (again.status_code, again.content) == (304, b"")


def test_a_form_that_there_is_not_is_named(client, tuned):
    answer = client.get(PATH, params={"format": "wasm"})
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == ["format"]
