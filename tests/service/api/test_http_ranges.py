from base64 import b64decode
from types import ModuleType

import numpy as np
import pytest

from tests.service import fakes
from tests.service.api.answers import assert_nothing_stored, assert_problem, assert_refused
from tests.service.conftest import TOOLCHAIN
from tests.service.jobs.test_range_jobs import RANGE, tune_range
from tests.service.telemetry.test_metrics import scraped
from tilewise.service.db import writing
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import lease
from tilewise.service.workers.range_run import run_range

TEXT = RANGE.canonical
INSIDE = "matmul:m=37,n=48,k=32,dtype=f32"
ASKED = {"problem": TEXT, "trials": 3, "peers": True}


@pytest.fixture
def ranged(client, sessions, machine):
    """Posts the range, and runs its job."""
    job = client.post("/v1/jobs", json=ASKED).json()["id"]
    with writing(sessions) as session:
        held = lease.claim_one(session, job, me())
    parts = {"tuner": fakes.tune, "prover": fakes.prove, "machine": machine}
    assert run_range(sessions, held, tune_range=tune_range, **parts).state == "done"
    return job


def test_a_range_is_a_job_like_any_other_whose_result_answers(client, ranged):
    job = client.get(f"/v1/jobs/{ranged}").json()
    assert (job["problem"], job["state"]) == (TEXT, "done")
    assert job["phase"] == {"name": "samples", "done": 6, "total": 7}
    assert ranged in [one["id"] for one in client.get("/v1/jobs").json()["jobs"]]
    events = client.get(f"/v1/jobs/{ranged}/events").text
    assert "event: phase" in events and "event: end" in events
    assert {client.get(page).status_code for page in ("/jobs", f"/jobs/{ranged}")} == {200}
    again = client.post("/v1/jobs", json=ASKED)
    found = client.get("/v1/schedules", params={"problem": TEXT})
    assert again.status_code == found.status_code == 200 and again.json() == found.json()
    form = client.post("/submit", data={"problem": TEXT, "trials": "3"}, follow_redirects=False)
    assert form.headers["location"] == f"/problems/{RANGE.key}"
    assert found.json()["spans"] == [[2, 19, 0], [20, 40, 1]]
    assert found.json()["toolchain"] == TOOLCHAIN


def test_a_stored_range_is_code(client, ranged):
    path = f"/v1/schedules/{RANGE.key}/kernel"
    found = client.get(path, params={"format": "json"})
    made = found.json()
    assert made["problem"] == TEXT and "int64_t m" in made["header"]
    assert made["proof"]["max_error"] <= made["proof"]["tolerance"]
    assert client.get(path, params={"format": "c-header"}).text == made["header"]
    assert client.get(path, params={"format": "object"}).content == b64decode(made["object"])
    known = {"If-None-Match": found.headers["ETag"]}
    assert client.get(path, params={"format": "json"}, headers=known).status_code == 304
    module = ModuleType("of_range")
    exec(client.get(path).text, vars(module))
    for m in (2, 19, 20, 40):
        a = np.arange(m * 32, dtype=np.float32).reshape(m, 32) % 7
        assert (module.matmul(a, np.eye(32, 48, dtype=np.float32))[:, :32] == a).all()
    absent = client.get(path, params={"format": "json", "target": "cpu:znver1,threads=1"})
    assert absent.status_code == 404


def test_the_page_of_a_range_shows_its_variants(client, ranged):
    shown = client.get(f"/problems/{RANGE.key}").text
    for text in ("m=2..19", "m=20..40", *(fakes.schedule(at).hash for at in (0, 1))):
        assert text in shown
    assert client.get(f"/problems/{RANGE.key}", params={"schedule": 1}).status_code == 200
    assert client.get(f"/problems/{RANGE.key}", params={"schedule": 2}).status_code == 404
    spec = client.get("/plots/ranges/1").json()
    rows = spec["data"]["values"]
    series = {"variant 0", "variant 1", "fastest of each", "openblas"}
    assert {row["series"] for row in rows} == series
    assert [row["size"] for row in rows if row["serves"]] == sorted({row["size"] for row in rows})
    assert client.get("/plots/ranges/2").status_code == 404


def test_a_size_is_looked_up(client, ranged):
    alone = client.get("/v1/schedules", params={"problem": INSIDE})
    assert alone.status_code == 404
    found = client.get("/v1/schedules", params={"problem": INSIDE, "match": "range"}).json()
    assert (found["match"]["kind"], found["match"]["range"]) == ("range", TEXT)
    body = {"problems": [INSIDE, "matmul:m=50,n=48,k=32,dtype=f32"], "files": ["cpu"]}
    exact, ranged = (
        client.post("/v1/schedules/lookup", json={**body, "match": match}).json()["schedules"]
        for match in ("exact", "range")
    )
    assert [one["schedule"] for one in exact] == [None, None]
    assert ranged[0]["schedule"] == found | {"space": None} and ranged[1]["schedule"] is None
    assert ranged[0]["files"] == {"cpu": None}
    client.get("/v1/schedules", params={"problem": TEXT})
    before = scraped(client)
    for inner, status in (("2..39", 200), ("1..41", 404)):
        asked = {"problem": TEXT.replace("2..40", inner)}
        assert client.get("/v1/schedules", params=asked).status_code == 404
        answer = client.get("/v1/schedules", params=asked | {"match": "range"})
        assert answer.status_code == status and (status != 200 or answer.json()["problem"] == TEXT)
    found, name = scraped(client), "tilewise_answers_total"
    more = [found[name, kind] - before[name, kind] for kind in ("range", "none")]
    assert more == [1, 3] and found[name, "exact"] == 1


def test_a_bad_range_names_its_field_and_a_queued_one_is_cancelled(client):
    for problem, field in (
        ("matmul:m=9..3,n=4,k=4,dtype=f32", "m"),
        ("matmul:m=1..9,n=1..9,k=1..4,dtype=f32", "m"),
        ("matmul:m=1..9999,n=4,k=4,dtype=f32", "m"),
        ("conv2d:n=1,h=8..9,w=8,ci=4,co=4,kh=3,kw=3,dtype=f32", "h"),
    ):
        assert_refused(client.post("/v1/jobs", json={"problem": problem}), field)
    assert_refused(client.post("/v1/jobs", json={**ASKED, "target": "iree:host"}), "target")
    posted = client.post("/v1/jobs", json=ASKED)
    assert posted.status_code == 202
    assert client.delete(posted.headers["Location"]).json()["state"] == "cancelled"


def test_a_cluster_tunes_no_ranges(client_factory, sessions):
    client = client_factory(scheduler="tcp://127.0.0.1:1")
    assert_problem(client.post("/v1/jobs", json=ASKED), 422, "cluster")
    assert_nothing_stored(sessions)
