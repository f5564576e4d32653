"""Whatever a client sends, the answer is one that the OpenAPI document describes.

`make fuzz` does the same with 3000 examples, other ones each time.
"""

from collections import Counter
from types import SimpleNamespace

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.service.conftest import KEY, PROBLEM, TOOLCHAIN, bearer
from tilewise.service.api.access.gate import RUNS
from tilewise.service.db import models, writing
from tilewise.service.runs import offers

ADMIN = "root"
UNTOUCHED = {
    "state": "queued", "owner": None, "host": None, "claimed_at": None, "heartbeat_at": None,
    "epoch": 0, "crashes": 0, "elapsed_s": 0.0, "complete": None, "error": None,
    "started_at": None, "finished_at": None, "phase": None, "phase_done": None,
    "phase_total": None, "trials": 4, "peers": False, "seconds": None, "spread": 2,
}  # fmt: skip
"""A job before its first run."""
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance,
          response_schema_conformance]  # fmt: skip
PARAMETERS = {"problem": PROBLEM, "key": KEY, "target": "host", "flavor": "air"}
SENSIBLE = {"problem": f"{PROBLEM},batch=3", "trials": 4}
IS_LONG = settings().max_examples > 1000
FUZZ = settings(
    max_examples=settings().max_examples if IS_LONG else 16, derandomize=not IS_LONG,
    deadline=None, database=None, stateful_step_count=10, suppress_health_check=list(HealthCheck),
)  # fmt: skip


@pytest.fixture
def admin(make_token):
    return bearer(make_token(ADMIN, "admin"))


@pytest.fixture
def offer(sessions, machine, submit, tuned):
    """A job that is offered to a leader and a helper."""
    job_id = submit(f"{PROBLEM},bias", spread=2)
    driver = "host:1:1"
    with writing(sessions) as session:
        made = offers.make(session, "tcp://10.0.0.2:4000", machine.targets, TOOLCHAIN, driver)
        job = session.get_one(models.Job, job_id)
        helper = offers.give(session, job, "tcp://10.0.0.3:4000", driver, "helper")
    assert made is not None and helper is not None
    return SimpleNamespace(job_id=job_id, leader=made, helper=helper)


def shown(case, admin, offer):
    if not case.path.startswith(RUNS):
        return admin
    case.path_parameters["job_id"] = offer.job_id
    whose = offer.helper if case.path.endswith(("/join", "/help")) else offer.leader
    return bearer(whose.token)


@pytest.fixture
def schema(client, tuned):
    return schemathesis.openapi.from_asgi("/openapi.json", client.app)


@pytest.mark.full
def test_sequences_of_requests_get_documented_answers(
    schema, client, sessions, tuned, admin, offer
):
    statuses: Counter[int] = Counter()

    class Machine(schema.as_state_machine()):
        def setup(self):
            """Begin each sequence with the same rows, since what is sent depends on answers."""
            self.asked = 0
            with sessions.begin() as session:
                session.query(models.Job).filter(
                    models.Job.id.not_in((tuned, offer.job_id))
                ).delete()
                session.query(models.Offer).update({"owner": None, "epoch": None})
                for of_job in (models.Trial, models.Candidate):
                    session.query(of_job).filter(of_job.job_id == offer.job_id).delete()
                session.query(models.Job).filter(models.Job.id == offer.job_id).update(UNTOUCHED)
                session.query(models.Token).filter(models.Token.name != ADMIN).delete()
                session.query(models.Token).update({"revoked_at": None})
            client.app.state.services.tokens.forget()

        def get_call_kwargs(self, case):
            if case.operation.label == "POST /v1/jobs":
                self.asked += 1
                if self.asked % 2:
                    case.body = dict(SENSIBLE)  # of random ones hardly any is accepted
            return {"headers": shown(case, admin, offer)}

        def validate_response(self, response, case, **_options):
            statuses[response.status_code] += 1
            case.validate_response(response, checks=CHECKS)

    Machine.run(settings=FUZZ)
    assert {200, 201, 202, 404, 422} <= set(statuses), statuses
    assert statuses[401] < statuses.total() / 10, "only after its own token was revoked"


@pytest.mark.full
def test_each_operation_gives_documented_answers(schema, admin, offer):
    statuses = {}
    for found in schema.get_all_operations():
        operation = found.ok()
        statuses[operation.label] = statuses_of(operation, admin, offer)
    assert len(statuses) >= 13
    for path in ("/v1/schedules", "/v1/schedules/{key}/script", "/v1/trials"):
        assert {200, 422} <= set(statuses[f"GET {path}"]), statuses
    assert 200 in statuses["POST /v1/runs/{job_id}/alive"], statuses
    assert 200 in statuses["GET /v1/tokens"] and 201 in statuses["POST /v1/tokens"], statuses


def statuses_of(operation, admin, offer):
    """The answers to random requests, in which some parameters are such as lead somewhere."""
    statuses: Counter[int] = Counter()

    @settings(FUZZ, max_examples=-(-FUZZ.max_examples // (10 if IS_LONG else 2)))
    @given(case=operation.as_strategy(), right=st.sets(st.sampled_from(sorted(PARAMETERS))))
    def ask(case, right):
        for name in right:
            for place in (case.query, case.path_parameters):
                if place and name in place:
                    place[name] = PARAMETERS[name]
        answer = case.call(headers=shown(case, admin, offer))
        statuses[answer.status_code] += 1
        case.validate_response(answer, checks=CHECKS)

    ask()
    return statuses
