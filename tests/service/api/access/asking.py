"""What the tests of access ask, and how a refusal looks."""

from tests.service.conftest import PROBLEM
from tilewise.kernels.problem import parse_problem

KEY = parse_problem(PROBLEM).key

SCRIPT = f"/v1/schedules/{KEY}/script"

JOB = {"problem": "matmul:m=8,n=8,k=8,dtype=f32", "trials": 4}


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def refused(answer, status, said=""):
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert said in answer.json()["detail"]
    return True
