import io
import json

import pytest
from fastapi.testclient import TestClient

from tests.kernels.mlir.frontend.dialects import OF_STABLEHLO, STABLEHLO
from tests.service.api.test_http_errors import assert_problem, assert_refused
from tests.service.api.test_http_networks import DYNAMIC
from tests.service.conftest import ClientFactory
from tilewise.service.api.routes import modules

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
        {
            "problem": "matmul:m=4,n=6,k=5,dtype=f32,init=accumulate",
            "count": 1,
            "where": ["@f 4:8 linalg.matmul"],
        }
    ],
    "skipped": [
        {
            "op": "linalg.matmul",
            "reason": "adds products of bf16 up in bf16; known is f32",
            "where": "@f 6:8 linalg.matmul",
        }
    ],
}


def test_a_module_is_read_as_text_and_as_json(client: TestClient) -> None:
    for answer in (
        client.post(PARSE, content=MODULE, headers=MLIR),
        client.post(PARSE, json={"module": MODULE}),
        client.post(
            PARSE,
            content=json.dumps({"module": MODULE}),
            headers={"content-type": "Application/JSON; charset=utf-8"},
        ),
    ):
        assert answer.status_code == 200, answer.text
        assert answer.json() == FOUND


def test_problems_are_strict_where_that_is_asked_for(client: TestClient) -> None:
    answer = client.post(PARSE, content=MODULE, headers=MLIR, params={"accuracy": "strict"})
    (found,), (standard,) = answer.json()["problems"], FOUND["problems"]
    assert found == {**standard, "problem": f"{standard['problem']},accuracy=strict"}
    assert answer.json()["skipped"] == FOUND["skipped"]
    for path in (PARSE, "/v1/problems/script"):
        refused = client.post(path, content=MODULE, headers=MLIR, params={"accuracy": "loose"})
        assert refused.status_code == 422
        assert [one["field"] for one in refused.json()["errors"]] == ["accuracy"]


def test_bytecode_is_read(client: TestClient) -> None:
    with ir.Context():
        file = io.BytesIO()
        ir.Module.parse(MODULE).operation.write_bytecode(file)
    answer = client.post(PARSE, content=file.getvalue(), headers=MLIR)
    assert [one["problem"] for one in answer.json()["problems"]] == [
        one["problem"] for one in FOUND["problems"]
    ]


def test_a_model_is_read(client: TestClient) -> None:
    found = client.post(PARSE, content=STABLEHLO, headers=MLIR).json()
    assert sum(one["count"] for one in found["problems"]) == len(OF_STABLEHLO)


@pytest.mark.full
@pytest.mark.parametrize(
    "module",
    [b"garbage", b"\0" * 100, b"module {" * 100_000, b"module attributes {a = " + b"[" * 100_000,
     b"ML\xefRgarbage", b"\xff\xfe\x00", b"%0 = " * 1000],
    ids=["garbage", "nulls", "modules", "attributes", "bytecode", "no text", "values"],
)  # fmt: skip
def test_what_is_no_module_is_refused_and_the_service_goes_on(
    client: TestClient, module: bytes
) -> None:
    answer = client.post(PARSE, content=module, headers=MLIR)
    assert_refused(answer, "module", "the module was not read: ")
    assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    "body", ["", "{", "[]", "null", '{"module": 3}', '{"module": "", "x": 1}', "[" * 100_000,
             '{"module": "\\ud800"}'],
    ids=lambda body: body[:12] or "nothing",
)  # fmt: skip
def test_what_is_no_such_object_is_refused(client: TestClient, body: str) -> None:
    answer = client.post(PARSE, content=body, headers={"Content-Type": "application/json"})
    assert_refused(answer, "module", "")
    assert len(answer.json()["detail"]) < 400


def test_a_module_may_be_larger_than_other_bodies(client_factory: ClientFactory) -> None:
    small = client_factory(body_bytes=1024, module_bytes=MOST)
    module = MODULE.encode() + b" " * (MOST - len(MODULE.encode()))
    assert small.post(PARSE, content=module, headers=MLIR).status_code == 200
    assert_problem(small.post(PARSE, content=module + b" ", headers=MLIR), 413)
    assert_problem(small.post("/v1/jobs", content=module, headers=MLIR), 413)


def test_the_same_module_is_read_once(client: TestClient, monkeypatch) -> None:
    asked = []
    read = modules.read_module

    def counted(module, limits, sizes):
        asked.append(module)
        return read(module, limits, sizes)

    monkeypatch.setattr(modules, "read_module", counted)
    for _ in range(3):
        assert client.post(PARSE, content=MODULE, headers=MLIR).json() == FOUND
        assert client.post(PARSE, content=b"garbage", headers=MLIR).status_code == 422
    assert len(asked) == 2
    for size in (5, 9):  # are two modules
        dims = {"dim": [f"0.0={size}", f"2.0={size}"]}
        answer = client.post(PARSE, content=DYNAMIC, headers=MLIR, params=dims).json()
        assert [one["problem"] for one in answer["problems"]] == [
            f"matmul:m={size},n=4,k=6,dtype=f32,init=accumulate"
        ]
    assert len(asked) == 4
    for dim in ("0.0=5", "0.0=1..5", "x=5", "5"):
        refused = client.post(PARSE, content=DYNAMIC, headers=MLIR, params={"dim": dim})
        assert refused.status_code == 422, refused.text
        assert [error["field"] for error in refused.json()["errors"]] == ["dim"]
