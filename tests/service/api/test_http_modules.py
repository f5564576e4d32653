import io
import json
from dataclasses import replace
from unittest.mock import Mock

import pytest

from tests.kernels.mlir.frontend.test_dialects import OF_TOSA, TOSA
from tests.service import fakes
from tests.service.api.answers import assert_problem, assert_refused, once_made
from tests.service.api.test_http_networks import DYNAMIC, OTHER
from tests.service.api.test_http_networks import MODULE as OF_TWO
from tests.service.conftest import PROBLEM
from tests.service.results.test_tampering import edit
from tilewise.service.api.routes import modules
from tilewise.service.results import kernels

ir = pytest.importorskip("iree.compiler.ir", reason="iree-base-compiler is not installed")

PARSE = "/v1/problems/parse"
MLIR = {"Content-Type": "text/x-mlir"}
MOST = 4096
MODULE = """
func.func @f(%a: tensor<4x5xf32>, %b: tensor<5x6xf32>, %c: tensor<4x6xf32>,
    %x: tensor<4x5xbf16>, %y: tensor<5x6xbf16>, %z: tensor<4x6xbf16>) -> tensor<4x6xf32> {
  %0 = linalg.matmul ins(%a, %b : tensor<4x5xf32>, tensor<5x6xf32>)
      outs(%c : tensor<4x6xf32>) -> tensor<4x6xf32>
  %1 = linalg.matmul ins(%x, %y : tensor<4x5xbf16>, tensor<5x6xbf16>)
      outs(%z : tensor<4x6xbf16>) -> tensor<4x6xbf16>
  return %0 : tensor<4x6xf32>
}
"""
FOUND = {
    "problems": [
        {"problem": "matmul:m=4,n=6,k=5,dtype=f32,init=accumulate", "count": 1,
         "where": ["@f 4:8 linalg.matmul"]}
    ],
    "skipped": [
        {"op": "linalg.matmul", "reason": "adds products of bf16 up in bf16; known is f32",
         "where": "@f 6:8 linalg.matmul"}
    ],
}  # fmt: skip


def test_a_module_is_read_as_text_and_as_json(client):
    sent = json.dumps({"module": MODULE})
    for content, kind in ((MODULE, MLIR["Content-Type"]), (sent, "application/json"),
                          (sent, "Application/JSON; charset=utf-8")):  # fmt: skip
        answer = client.post(PARSE, content=content, headers={"Content-Type": kind})
        assert answer.status_code == 200, answer.text
        assert answer.json() == FOUND


def test_problems_are_strict_where_that_is_asked_for(client):
    answer = client.post(PARSE, content=MODULE, headers=MLIR, params={"accuracy": "strict"})
    (found,), (standard,) = answer.json()["problems"], FOUND["problems"]
    assert found == {**standard, "problem": f"{standard['problem']},accuracy=strict"}
    assert answer.json()["skipped"] == FOUND["skipped"]
    for path in (PARSE, "/v1/problems/script"):
        refused = client.post(path, content=MODULE, headers=MLIR, params={"accuracy": "loose"})
        assert_refused(refused, "accuracy")


def test_bytecode_and_a_whole_model_are_read(client):
    with ir.Context():
        file = io.BytesIO()
        ir.Module.parse(MODULE).operation.write_bytecode(file)
    answer = client.post(PARSE, content=file.getvalue(), headers=MLIR).json()
    assert [one["problem"] for one in answer["problems"]] == [FOUND["problems"][0]["problem"]]
    found = client.post(PARSE, content=TOSA, headers=MLIR).json()
    assert sum(one["count"] for one in found["problems"]) == len(OF_TOSA)


@pytest.mark.full
def test_what_is_no_module_is_refused_and_the_service_goes_on(client):
    for module in (
        b"garbage", b"\0" * 100, b"module {" * 100_000, b"module attributes {a = " + b"[" * 100_000,
        b"ML\xefRgarbage", b"\xff\xfe\x00", b"%0 = " * 1000,
    ):  # fmt: skip
        answer = client.post(PARSE, content=module, headers=MLIR)
        assert_refused(answer, "module", "the module was not read: ")
        assert client.get("/healthz").status_code == 200


def test_what_is_no_such_object_is_refused(client):
    for body in ("", "{", "[]", "null", '{"module": 3}', '{"module": "", "x": 1}', "[" * 100_000,
                 '{"module": "\\ud800"}'):  # fmt: skip
        answer = client.post(PARSE, content=body, headers={"Content-Type": "application/json"})
        assert len(assert_refused(answer, "module")["detail"]) < 400


def test_a_module_may_be_larger_than_other_bodies(client_factory):
    small = client_factory(body_bytes=1024, module_bytes=MOST)
    module = MODULE.encode() + b" " * (MOST - len(MODULE.encode()))
    assert small.post(PARSE, content=module, headers=MLIR).status_code == 200
    assert_problem(small.post(PARSE, content=module + b" ", headers=MLIR), 413)
    assert_problem(small.post("/v1/jobs", content=module, headers=MLIR), 413)


def test_the_same_module_is_read_once(client, monkeypatch):
    asked = Mock(side_effect=modules.read_module)
    monkeypatch.setattr(modules, "read_module", asked)
    for _ in range(3):
        assert client.post(PARSE, content=MODULE, headers=MLIR).json() == FOUND
        assert client.post(PARSE, content=b"garbage", headers=MLIR).status_code == 422
    assert asked.call_count == 2
    for size in (5, 9):  # are two modules
        dims = {"dim": [f"0.0={size}", f"2.0={size}"]}
        answer = client.post(PARSE, content=DYNAMIC, headers=MLIR, params=dims).json()
        assert [one["problem"] for one in answer["problems"]] == [
            f"matmul:m={size},n=4,k=6,dtype=f32,init=accumulate"
        ]
    assert asked.call_count == 4
    for dim in ("0.0=5", "x=5"):
        refused = client.post(PARSE, content=DYNAMIC, headers=MLIR, params={"dim": dim})
        assert_refused(refused, "dim")


SCRIPT = "/v1/problems/script"


@pytest.fixture
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(modules, "LIMITS", replace(modules.LIMITS, seconds=100.0))


def asked(client, module=OF_TWO, **query):
    return once_made(lambda: client.post(SCRIPT, content=module, headers=MLIR, params=query))


@pytest.mark.full
def test_a_stored_schedule_is_proven_on_the_op(client, tuned, own_cache, monkeypatch):
    parsed = client.post("/v1/problems/parse", content=OF_TWO, headers=MLIR).json()
    (place,) = parsed["problems"][0]["where"]
    answer = asked(client, place=place)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told["problem"], told["place"], told["flavor"]) == (PROBLEM, place, "cpu")
    fastest = fakes.schedule(3)
    assert told["schedule"]["hash"] == fastest.hash
    assert told["schedule"]["steps"] == fastest.to_json()
    assert (told["match"], told["stale"]) == ("exact", False)
    assert told["target"] == client.get(f"/v1/schedules?problem={PROBLEM}").json()["target"]
    assert 0 < told["proof"]["max_error"] <= told["proof"]["tolerance"]
    assert f"// schedule: {fastest.hash}" in told["script"]
    assert "func.func" not in told["script"].split("transform.named_sequence")[0]
    monkeypatch.setattr(kernels, "answer_of", lambda *_: pytest.fail("it is kept"))
    by_number = client.post(SCRIPT, json={"module": OF_TWO}, params={"place": "1"})
    assert by_number.json() == told
    behind_op = asked(client, place="1", with_payload="true").json()
    script = behind_op.pop("script")
    assert script.index("func.func @kernel") < script.index("@__transform_main")
    assert behind_op == {key: value for key, value in told.items() if key != "script"}


@pytest.mark.full
def test_what_is_not_there_is_named(client, tuned, own_cache):
    assert_problem(asked(client, place="2"), 404, f"no schedule of {OTHER} is stored")
    for place in ("", "3", "@nowhere 1:1"):
        assert_refused(asked(client, place=place), "place", "")
    assert_refused(asked(client, "no module"), "module", "the module was not read: ")
    assert_refused(asked(client, place="1", target="gpu:0"), "target", "")
    assert_refused(asked(client, target="iree:host"), "target", "are for targets cpu:NAME")


def test_that_none_proves_is_found_out_once_in_a_while(client, tuned, own_cache, monkeypatch):
    reason = "@main 9:8: no script proved; the last one: wrong: by 3"
    refused = Mock(return_value=json.dumps({"reason": reason}))
    monkeypatch.setattr(kernels, "answer_of", refused)
    for _ in range(2):
        assert_problem(asked(client, place="1"), 404, "the last one: wrong: by 3")
    ((_, _, source),) = (call.args for call in refused.call_args_list)
    fastest_first = [fakes.schedule(n).to_json() for n in (3, 2, 1, 0)]
    assert json.loads(source)["schedules"] == fastest_first


def test_of_a_row_that_was_edited_no_script_is_made(client, tuned, own_cache, url, monkeypatch):
    monkeypatch.setattr(kernels, "answer_of", lambda *_: pytest.fail("it was asked for"))
    edit(url, "schedules SET steps = '[]'")
    assert assert_problem(asked(client, place="1"), 500)["type"] == "urn:tilewise:tampered-row"
