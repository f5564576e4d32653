from dataclasses import replace
from datetime import timedelta

import pytest
from alembic import command
from sqlalchemy import update

from tests.service.conftest import PROBLEM, TOOLCHAIN
from tests.service.db.released.dumps import migrate
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import detect
from tilewise.kernels.target.features import EXTENSIONS, implied
from tilewise.migrations import targets
from tilewise.service.db import models, schema, writing
from tilewise.service.db.base import now
from tilewise.service.jobs import claims
from tilewise.service.runs import offers
from tilewise.service.workers import job_run

MASKED, OLD = "matmul:m=8,n=8,k=8,dtype=f32", "matmul:m=9,n=9,k=9,dtype=f32"
CPU = "emeraldrapids"
FULL = tuple(sorted(implied(CPU)))
HIDDEN = "features=-amx-bf16:-amx-int8:-amx-tile:-avx512bf16:-avx512fp16"
PLAIN = f"cpu:{CPU},threads=1"
TARGETS = {PROBLEM: PLAIN, MASKED: f"{PLAIN},{HIDDEN}", OLD: f"{PLAIN},features=unknown"}


@pytest.fixture
def machine(machine):
    return replace(machine, cpu=CPU, features=FULL)


@pytest.fixture(autouse=True)
def runs_anywhere(monkeypatch):
    monkeypatch.setattr(job_run, "resolve", lambda target: detect())


@pytest.fixture
def masked(machine):
    hidden = {entry[1:] for entry in HIDDEN.removeprefix("features=").split(":")}
    return replace(machine, host="masked", features=tuple(set(FULL) - hidden))


@pytest.fixture
def old(url, sessions, machine, masked, submit, run):
    """A store of revision 0018: machines with all features, with some, and with none recorded."""
    hosts = {PROBLEM: machine, MASKED: masked, OLD: replace(machine, host="old")}
    for problem, on in hosts.items():
        run(submit(problem), machine=on)
        run(submit(problem, trials=6), machine=on)
    with writing(sessions) as session:
        session.execute(update(models.Machine).where(models.Machine.host == "old")
                        .values(features=None))  # fmt: skip
    migrate(url, command.downgrade, "0018")
    return url


def test_the_frozen_copies_are_those_of_the_code(machine, masked):
    assert targets.EXTENSIONS == EXTENSIONS
    assert all(targets.IMPLIED[name] == implied(name) for name in targets.IMPLIED if name)
    for one in (machine, masked, replace(machine, cpu="neoverse-v1", features=("neon",))):
        assert one.target == f"cpu:{one.cpu},threads=1{targets.ending(one.cpu, one.features)}"


def test_results_for_other_features_are_not_exact(old, client_factory, machine, masked):
    schema.upgrade(old)
    clients = {on.target: client_factory(old, on=on) for on in (machine, masked)}

    def look_up(on, problem, **params):
        return clients[on].get("/v1/schedules", params={"problem": problem, **params})

    for target, client in clients.items():
        for problem, of in TARGETS.items():
            script = client.get(f"/v1/schedules/{parse_problem(problem).key}/script")
            codes = {look_up(target, problem).status_code, script.status_code}
            assert codes == {200 if of == target else 404}, (target, problem)
    near = look_up(machine.target, MASKED, match="nearest").json()
    assert near["target"] == masked.target and near["match"]["kind"] == "processor"
    hidden = HIDDEN.removeprefix("features=").replace(":", " ")
    assert near["match"]["reason"] == f"features differ: {hidden}"
    assert look_up(machine.target, OLD, match="nearest").json()["match"] == {
        "kind": "processor", "differs": {"target": {"asked": PLAIN, "given": TARGETS[OLD]}},
        "reason": "the features of the machine that timed it were not recorded", "range": None,
    }  # fmt: skip
    shown = look_up(machine.target, OLD, target=TARGETS[OLD]).json()
    assert shown["match"]["kind"] == "processor", "which is named, and not exact"
    # What needs the hidden features does not run where they are hidden.
    assert look_up(masked.target, PROBLEM, match="nearest").status_code == 404


def test_a_masked_machine_refuses_jobs_of_the_whole_processor(client_factory, masked):
    client = client_factory(on=masked)
    answer = client.post("/v1/jobs", json={"problem": PROBLEM, "target": PLAIN})
    assert answer.status_code == 422
    detail = answer.json()["detail"]
    assert f"this machine is {masked.target}, which lacks amx-bf16" in detail
    assert client.post("/v1/jobs", json={"problem": PROBLEM}).status_code == 202
    assert client.get("/v1/jobs").json()["jobs"][0]["target"] == masked.target


@pytest.mark.parametrize("has_cluster", [True, False])
def test_nobody_asks_for_a_search_on_unknown_features(client_factory, masked, has_cluster):
    client = client_factory(on=masked)
    services = client.app.state.services
    client.app.state.services = replace(services, has_cluster=has_cluster)
    answer = client.post("/v1/jobs", json={"problem": PROBLEM, "target": TARGETS[OLD]})
    assert answer.status_code == 422 and "only names results that are stored" in answer.text


def test_a_masked_worker_takes_no_job_of_the_whole_processor(sessions, submit, machine, masked):
    job = submit()
    with writing(sessions) as session:
        assert offers.make(session, "w", masked.targets, TOOLCHAIN, "d") is None
        served, limit = {(one, TOOLCHAIN) for one in masked.targets}, (timedelta(hours=1), now())
        claims.note_unserved(session, served, *limit)
        assert session.get_one(models.Job, job).unserved_since is not None
        claims.note_unserved(session, {(machine.target, TOOLCHAIN)}, *limit)
        assert session.get_one(models.Job, job).unserved_since is None
        assert offers.make(session, "w", machine.targets, TOOLCHAIN, "d").job_id == job
