"""What the methods on plans ask and make of the answers, said once for both clients."""

import uuid
from collections.abc import Callable
from typing import Any, TypedDict

import httpx

from tilewise.client.exchange import Ask, Exchange, ask, is_accepted, json_of, made
from tilewise.client.found import require_accuracy
from tilewise.client.plans.results import ModelPlan
from tilewise.client.results import read
from tilewise.kernels.problem import Accuracy

Json = dict[str, Any]
PATH = "/v1/plans"


class PlanOptions(TypedDict, total=False):
    """The parameters of `POST /v1/plans`; those left out have its defaults."""

    target: str
    trials: int
    seed: int
    cache: str
    layouts: str
    name: str
    accuracy: Accuracy


def submit(
    url: str, module: str | bytes, on_wait: Callable[[], None] | None, options: PlanOptions
) -> Exchange[ModelPlan]:
    """Ask for a plan of an MLIR module."""
    content = module.encode() if isinstance(module, str) else module
    headers = {"Content-Type": "text/x-mlir", "Idempotency-Key": str(uuid.uuid4())}
    request = Ask("POST", PATH, {**options}, content=content, headers=headers)

    def is_being_read(response: httpx.Response) -> bool:
        return is_accepted(response) and "id" not in json_of(response, url)

    asked = plan_of(json_of((yield from made(request, url, on_wait, is_being_read)), url))
    require_accuracy(options.get("accuracy"), (one.problem for one in asked.problems), url)
    return asked


def plan(url: str, plan_id: int) -> Exchange[ModelPlan]:
    """One plan."""
    return plan_of(json_of((yield from ask(Ask("GET", f"{PATH}/{plan_id}"), url)), url))


def cancel(url: str, plan_id: int) -> Exchange[ModelPlan]:
    """Call a plan off, which twice is as good as once."""
    return plan_of(json_of((yield from ask(Ask("DELETE", f"{PATH}/{plan_id}"), url)), url))


def plan_of(source: Json) -> ModelPlan:
    """One of `/v1/plans`."""
    return read(ModelPlan, source)
