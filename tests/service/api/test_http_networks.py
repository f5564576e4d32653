"""`/v1/models` over HTTP: a module's problems as one, on a schema that survives the process."""

from fastapi.testclient import TestClient

from tests.service.conftest import PROBLEM, ClientFactory

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
OTHER = "matmul:m=64,n=40,k=48,dtype=f32"


def test_each_problem_of_a_model_gets_a_job(client: TestClient) -> None:
    answer = client.post(f"{ADDRESS}?trials=3", content=MODULE, headers=TEXT)
    assert answer.status_code == 202, answer.text
    told = answer.json()
    assert answer.headers["location"] == told["links"]["self"] == f"{ADDRESS}/1"
    assert [one["problem"] for one in told["problems"]] == [PROBLEM, OTHER]
    assert (told["state"], told["time_us"], told["trials"]) == ("queued", None, 3)
    for one in told["problems"]:
        job = client.get(f"/v1/jobs/{one['job']}").json()
        assert (job["problem"], job["state"]) == (one["problem"], "queued")
        assert job["trials"]["asked"] == 3 and one["count"] == 1


def test_a_model_outlives_the_service_and_joins_jobs(client_factory: ClientFactory) -> None:
    first = client_factory().post(ADDRESS, json={"module": MODULE}).json()
    again = client_factory()
    assert again.get(f"{ADDRESS}/1").json() == first
    second = again.post(ADDRESS, json={"module": MODULE}).json()
    assert second["id"] == 2 and second["sha256"] == first["sha256"]
    assert [one["job"] for one in second["problems"]] == [one["job"] for one in first["problems"]]


def test_a_cancelled_job_is_told(client: TestClient) -> None:
    told = client.post(ADDRESS, content=MODULE, headers=TEXT).json()
    states = []
    for one in told["problems"]:
        client.delete(f"/v1/jobs/{one['job']}")
        states.append(client.get(f"{ADDRESS}/1").json()["state"])
    assert states == ["running", "cancelled"]


def test_what_cannot_be_tuned_is_refused(client: TestClient) -> None:
    nothing = "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }"
    for body in (nothing, "no module"):
        assert client.post(ADDRESS, content=body, headers=TEXT).status_code == 422
    assert client.post(f"{ADDRESS}?trials=0", content=MODULE, headers=TEXT).status_code == 422
    assert client.get(f"{ADDRESS}/1").status_code == 404
    assert client.get("/v1/jobs").json()["jobs"] == []
