import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from httpx import Response

from tests.service import fakes
from tests.service.api.test_http_errors import assert_problem, assert_refused
from tests.service.api.test_http_networks import MODULE, OTHER
from tests.service.conftest import PROBLEM
from tests.service.results.test_tampering import edit
from tilewise.service.api.routes import modules
from tilewise.service.results import kernels

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

SCRIPT = "/v1/problems/script"
TEXT = {"content-type": "text/x-mlir"}
OF_FAKES = fakes.schedule(3).hash
"""The fastest of the four schedules that the fake search times."""


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(modules, "LIMITS", replace(modules.LIMITS, seconds=100.0))


def asked(client: TestClient, module: str = MODULE, **query: str) -> Response:
    until = time.monotonic() + 120
    while True:
        answer = client.post(SCRIPT, content=module, headers=TEXT, params=query)
        if answer.status_code != 202 or time.monotonic() > until:
            return answer
        time.sleep(0.2)


@pytest.mark.full
def test_a_stored_schedule_is_proven_on_the_op(
    client: TestClient, tuned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = client.post("/v1/problems/parse", content=MODULE, headers=TEXT).json()
    (place,) = parsed["problems"][0]["where"]
    answer = asked(client, place=place)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told["problem"], told["place"], told["flavor"]) == (PROBLEM, place, "cpu")
    assert told["schedule"]["hash"] == OF_FAKES
    assert told["schedule"]["steps"] == fakes.schedule(3).to_json()
    assert (told["match"], told["stale"]) == ("exact", False)
    assert told["target"] == client.get(f"/v1/schedules?problem={PROBLEM}").json()["target"]
    assert 0 < told["proof"]["max_error"] <= told["proof"]["tolerance"]
    assert f"// schedule: {OF_FAKES}" in told["script"]
    assert "func.func" not in told["script"].split("transform.named_sequence")[0]
    monkeypatch.setattr(kernels, "answer_of", lambda *_: pytest.fail("it is kept"))
    by_number = client.post(SCRIPT, json={"module": MODULE}, params={"place": "1"})
    assert by_number.json() == told
    behind_op = asked(client, place="1", with_payload="true").json()
    script = behind_op.pop("script")
    assert script.index("func.func @kernel") < script.index("@__transform_main")
    assert behind_op == {key: value for key, value in told.items() if key != "script"}


@pytest.mark.full
def test_what_is_not_there_is_named(client: TestClient, tuned: int) -> None:
    stranger = asked(client, place="2")
    assert_problem(stranger, 404)
    assert f"no schedule of {OTHER} is stored" in stranger.json()["detail"]
    for place in ("", "3", "@nowhere 1:1"):
        assert_refused(asked(client, place=place), "place", "")
    assert_refused(asked(client, "no module"), "module", "the module was not read: ")
    assert_refused(asked(client, place="1", target="gpu:0"), "target", "")
    assert_refused(asked(client, target="iree:host"), "target", "are for targets cpu:NAME")


def test_that_none_proves_is_found_out_once_in_a_while(
    client: TestClient,
    submit: Callable[..., int],
    run: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run(submit())
    given: list[dict[str, object]] = []

    def refused(_module: str, _what: str, source: str) -> str:
        given.append(json.loads(source))
        return json.dumps({"reason": "@main 9:8: no script proved; the last one: wrong: by 3"})

    monkeypatch.setattr(kernels, "answer_of", refused)
    for _ in range(2):
        answer = asked(client, place="1")
        assert_problem(answer, 404)
        assert "the last one: wrong: by 3" in answer.json()["detail"]
    (source,) = given
    hashes = [fakes.schedule(n).hash for n in (3, 2, 1, 0)]
    steps = {one.hash: one.to_json() for one in map(fakes.schedule, range(4))}
    assert source["schedules"] == [steps[one] for one in hashes], "the fastest first"


def test_of_a_row_that_was_edited_no_script_is_made(
    client: TestClient, tuned: int, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "answer_of", lambda *_: pytest.fail("it was asked for"))
    edit(url, "UPDATE schedules SET steps = '[]'")
    answer = asked(client, place="1")
    assert answer.status_code == 500
    assert answer.json()["type"] == "urn:tilewise:tampered-row"
