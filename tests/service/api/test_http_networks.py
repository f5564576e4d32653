import pytest

from tests.service.api.answers import assert_problem, assert_refused, once_made
from tests.service.conftest import PROBLEM

ADDRESS = "/v1/models"
TEXT = {"content-type": "text/x-mlir"}
MODULE = """
func.func @main(%a: tensor<64x32xf32>, %b: tensor<32x48xf32>, %c: tensor<48x40xf32>)
    -> (tensor<64x48xf32>, tensor<64x40xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x48xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x48xf32>) -> tensor<64x48xf32>
  %p = linalg.matmul ins(%a, %b : tensor<64x32xf32>, tensor<32x48xf32>)
    outs(%f : tensor<64x48xf32>) -> tensor<64x48xf32>
  %g = tensor.empty() : tensor<64x40xf32>
  %h = linalg.fill ins(%zero : f32) outs(%g : tensor<64x40xf32>) -> tensor<64x40xf32>
  %q = linalg.matmul ins(%p, %c : tensor<64x48xf32>, tensor<48x40xf32>)
    outs(%h : tensor<64x40xf32>) -> tensor<64x40xf32>
  return %p, %q : tensor<64x48xf32>, tensor<64x40xf32>
}
"""
DYNAMIC = """
func.func @main(%a: tensor<?x6xf32>, %b: tensor<6x4xf32>, %c: tensor<?x4xf32>)
    -> tensor<?x4xf32> {
  %r = linalg.matmul ins(%a, %b : tensor<?x6xf32>, tensor<6x4xf32>)
    outs(%c : tensor<?x4xf32>) -> tensor<?x4xf32>
  return %r : tensor<?x4xf32>
}
"""
OTHER = "matmul:m=64,n=40,k=48,dtype=f32"


def posted(client, module=MODULE, **query):
    return once_made(
        lambda: client.post(ADDRESS, content=module, headers=TEXT, params=query),
        lambda answer: answer.status_code != 202 or "id" in answer.json(),
    )


def test_each_problem_of_a_model_gets_a_job(client):
    answer = posted(client, trials="3")
    assert answer.status_code == 202, answer.text
    told = answer.json()
    assert answer.headers["location"] == told["links"]["self"] == f"{ADDRESS}/1"
    assert [one["problem"] for one in told["problems"]] == [PROBLEM, OTHER]
    assert (told["state"], told["time_us"], told["trials"]) == ("queued", None, 3)
    for one in told["problems"]:
        job = client.get(f"/v1/jobs/{one['job']}").json()
        assert (job["problem"], job["state"]) == (one["problem"], "queued")
        assert job["trials"]["asked"] == 3 and one["count"] == 1
    states = []
    for one in told["problems"]:
        client.delete(f"/v1/jobs/{one['job']}")
        states.append(client.get(f"{ADDRESS}/1").json()["state"])
    assert states == ["running", "cancelled"]


def test_a_strict_model_has_problems_of_its_own(client):
    standard, strict = (posted(client, accuracy=one).json() for one in ("standard", "strict"))
    assert [told["accuracy"] for told in (standard, strict)] == ["standard", "strict"]
    assert [one["problem"] for one in strict["problems"]] == [
        f"{one},accuracy=strict" for one in (PROBLEM, OTHER)
    ]
    jobs = [{one["job"] for one in told["problems"]} for told in (standard, strict)]
    assert not jobs[0] & jobs[1]
    assert_refused(posted(client, accuracy="loose"), "accuracy")


@pytest.mark.full
def test_a_model_outlives_the_service_and_joins_jobs(client_factory):
    first = posted(client_factory()).json()
    again = client_factory()
    assert again.get(f"{ADDRESS}/1").json() == first
    second = posted(again).json()
    assert second["id"] == 2 and second["sha256"] == first["sha256"]
    assert [one["job"] for one in second["problems"]] == [one["job"] for one in first["problems"]]


@pytest.mark.full
def test_what_cannot_be_tuned_is_refused(client):
    nothing = "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }"
    for body in (nothing, "no module"):
        assert posted(client, body).status_code == 422
    assert posted(client, trials="0").status_code == 422
    assert client.get(f"{ADDRESS}/1").status_code == 404
    assert_refused(client.get(f"{ADDRESS}/first"), "model_id")
    assert_problem(posted(client, DYNAMIC), 422, "linalg.matmul at @main 4:8 has dynamic shapes")
    assert client.get("/v1/jobs").json()["jobs"] == []
