import base64

import pytest

from tests.service.conftest import PROBLEM
from tilewise.kernels.native.objects.object_files import Elf
from tilewise.kernels.problem import parse_problem

KEY = parse_problem(PROBLEM).key
PATH = f"/v1/schedules/{KEY}/kernel"
TYPES = {
    "object": "application/octet-stream",
    "bitcode": "application/octet-stream",
    "c-header": "text/x-c",
    "json": "application/json",
}


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

    monkeypatch.setattr("tilewise.service.api.routes.schedules.kernel_module", made_again)
    assert client.get(PATH, params={"format": "c-header"}).status_code == 200
    sent = {"If-None-Match": first.headers["ETag"]}
    again = client_factory().get(PATH, params={"format": "object"}, headers=sent)
    assert (again.status_code, again.content) == (304, b"")


def test_a_form_that_there_is_not_is_named(client, tuned):
    answer = client.get(PATH, params={"format": "wasm"})
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == ["format"]
