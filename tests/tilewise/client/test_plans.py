import pytest

from tests.service.api.test_http_networks import MODULE, OTHER
from tests.service.conftest import PROBLEM
from tests.service.plans.makers import SCRIPT
from tilewise import Client, MissingError
from tilewise.client import PartEnded, PlanEnded

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")


@pytest.mark.full
def test_a_plan_is_followed_to_its_end(served: str) -> None:
    with Client(served) as client:
        asked = client.submit_plan(MODULE, trials=2, layouts="model", name="two.mlir")
        assert [part.problem for part in asked.problems] == [PROBLEM, OTHER]
        events = list(client.plan_events(asked.id))
        parts = [event for event in events if isinstance(event, PartEnded)]
        assert {event.part.problem for event in parts} == {PROBLEM, OTHER}
        assert [(event.done, event.total) for event in parts] == [(1, 2), (2, 2)]
        assert isinstance(events[-1], PlanEnded) and events[-1].plan.state == "done"
        plan = client.plan(asked.id)
        assert (plan.name, plan.has_ended, plan.error) == ("two.mlir", True, None)
        assert plan.totals is not None and plan.plan is not None
        assert client.plan_script(plan.id).text == SCRIPT
        assert plan.sha256 in (client.plan_runner(plan.id).text or "")
        assert [one.id for one in client.plans(state="done")] == [plan.id]
        with pytest.raises(MissingError):
            client.plan(plan.id + 1)
        strict = client.submit_plan(MODULE, trials=2, layouts="model", accuracy="strict")
        assert (plan.accuracy, strict.accuracy) == ("standard", "strict")
        assert all("accuracy=strict" in part.problem for part in strict.problems)
