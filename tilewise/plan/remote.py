"""Plans that a service makes: its workers tune, time and prove; the dashboard lists them."""

import sys
from typing import Any

from tilewise.client import Client
from tilewise.client.api import PlanOptions
from tilewise.client.events import PartEnded
from tilewise.errors import TilewiseError


def planned_at(server: str, module: bytes, options: PlanOptions) -> dict[str, Any]:
    """Post a model to a service, wait for its plan, and return the plan as JSON.

    Args:
        server: URL of the service.
        module: MLIR, text or bytecode.
        options: parameters of `POST /v1/plans`.

    Raises:
        TilewiseError: the plan failed or was cancelled; and as the client raises.
    """
    with Client(server) as client:
        asked = client.submit_plan(module, **options)
        sys.stderr.write(f"tilewise: plan {asked.id} at {server}\n")
        for event in client.plan_events(asked.id):
            if isinstance(event, PartEnded):
                sys.stderr.write(f"tilewise: {event.done}/{event.total} problems have ended\n")
        made = client.plan(asked.id)
    if made.plan is None:
        raise TilewiseError(f"plan {made.id} is {made.state}: {made.error or 'no reason is known'}")
    return made.plan
