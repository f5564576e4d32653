import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from benchmarks.serving.populated import TARGET, TOOLCHAINS
from tests.service.api import answers
from tests.service.conftest import settings_for
from tilewise.service.app import create_app
from tilewise.service.db import make_engine
from tilewise.service.db.base import now

CLOSE_S = 30.0


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.full)]
)
def url(request, populated):
    return populated[request.param]


@pytest.fixture(scope="module")
def ask(url):
    engine = make_engine(url)

    def make(query, **values):
        with engine.connect() as connection:
            return [dict(row) for row in connection.execute(text(query), values).mappings()]

    yield make
    engine.dispose()


@pytest.fixture(scope="module")
def service(url, machine):
    app = create_app(settings_for(url), 0, machine=machine, toolchain=TOOLCHAINS[1])
    with TestClient(app) as made:
        yield made


@pytest.mark.full
def test_the_best_schedules(service, ask):
    rows = ask("SELECT * FROM best_schedules WHERE toolchain = :it", it=TOOLCHAINS[1])
    assert len(rows) > 40
    for row in rows:
        asked = {"problem": row["problem"], "target": row["target"]}
        result = service.get("/v1/schedules", params=asked).json()
        best = result["best"]
        peers = {name: peer["gflops"] for name, peer in result["peers"].items()}
        fastest = max(peers, key=peers.get, default=None)
        script = service.get(f"/v1/schedules/{row['key']}/script", params={"target": TARGET})
        proof = {"proof_gflops": result["proof"]["gflops"]} if row["proven"] else {}
        expected = {
            **{name: result[name] for name in ("key", "cache", "elapsed_s", "complete")},
            **{name: best[name] for name in ("hash", "gflops", "time_us", "peak_fraction")},
            "low": best["interval"][0], "high": best["interval"][1], "best_peer": fastest,
            "best_peer_gflops": peers.get(fastest), "proven": script.status_code == 200, **proof,
        }  # fmt: skip
        assert {name: row[name] for name in expected} == expected


def test_the_best_so_far_is_what_the_search_would_tell(service, ask):
    jobs = [row["job"] for row in ask("SELECT DISTINCT job FROM trial_history")]
    for job in jobs[::14]:
        best = None
        told = {t["number"]: t for t in answers.rows(service, f"/v1/jobs/{job}/trials", "trials")}
        rows = ask("SELECT * FROM trial_history WHERE job = :job ORDER BY number", job=job)
        assert [row["number"] for row in rows] == sorted(told)
        for row in rows:
            trial = told[row["number"]]
            if trial["state"] == "timed":
                best = max(trial["gflops"], best or 0.0)
            assert row["best_so_far"] == best


def test_jobs(service, ask):
    told = answers.rows(service, "/v1/jobs", "jobs")
    rows = {row["job"]: row for row in ask("SELECT * FROM job_progress")}
    assert len(told) == len(rows) > 70
    assert {job["state"] for job in told} == {"queued", "running", "done", "failed"}
    for job in told:
        row, trials = rows[job["id"]], job["trials"]
        expected = {f"trials_{name}": number for name, number in trials.items()}
        expected |= {name: job[name] for name in ("state", "problem", "key", "target", "cache")}
        expected |= {name: job[name] for name in ("toolchain", "error", "complete")}
        expected["best_gflops"] = job["best"] and job["best"]["gflops"]
        assert {name: row[name] for name in expected} == expected
        ended = sum(trials.values()) - trials["asked"]
        assert row["done_fraction"] == pytest.approx(ended / trials["asked"])
        assert row["elapsed_s"] == pytest.approx(job["elapsed_s"], abs=CLOSE_S)
        phase = job["phase"] or {"name": None, "done": None, "total": None}
        if row["phase"] is not None:
            assert [row["phase"], row["phase_done"], row["phase_total"]] == list(phase.values())
        assert (row["heartbeat_age_s"] is None) == (job["state"] != "running")


def test_failures(service, ask):
    trials = answers.rows(service, "/v1/trials?state=failed&limit=1000", "trials")
    jobs = answers.rows(service, "/v1/jobs?state=failed", "jobs")
    rows = ask("SELECT * FROM failures")
    by = {kind: [r for r in rows if r["source"] == kind] for kind in ("trial", "job", "proof")}
    assert sorted((r["job"], r["trial"], r["class"], r["message"]) for r in by["trial"]) == sorted(
        (t["job"], t["number"], t["failure"], t["message"]) for t in trials
    )
    assert sorted((r["job"], r["message"]) for r in by["job"]) == sorted(
        (job["id"], job["error"]) for job in jobs
    )
    unproven = ask("SELECT proof FROM proofs WHERE NOT ok")
    assert len(by["proof"]) == len(unproven) > 0
    assert {row["class"] for row in by["proof"]} == {"wrong"}


def test_machines(service, url, ask):
    engine = make_engine(url)
    with engine.begin() as connection:  # time has passed since the rows were made
        seen = text("UPDATE workers SET seen_at = :now WHERE machine_id < 3")
        moment = now() if engine.dialect.name == "postgresql" else f"{now():%Y-%m-%d %H:%M:%S.%f}"
        connection.execute(seen, {"now": moment})
    engine.dispose()
    told = {worker["host"]: worker for worker in service.get("/v1/targets").json()["workers"]}
    rows = {row["host"]: row for row in ask("SELECT * FROM machine_activity")}
    assert {host for host, row in rows.items() if row["workers_alive"]} == set(told)
    assert 0 < len(told) < len(rows)
    for host, worker in told.items():
        assert rows[host]["capacity"] == worker["capacity"]
        for dtype in ("f32", "f64", "bf16"):
            assert rows[host][f"peak_{dtype}_gflops"] == worker["peaks"].get(dtype)
    jobs = answers.rows(service, "/v1/jobs", "jobs")
    for state in ("running", "done", "failed"):
        number = sum(job["state"] == state for job in jobs)
        assert sum(row[f"jobs_{state}"] for row in rows.values()) == number
    lately = ask("SELECT count(*) AS n FROM trial_history WHERE NOT is_copy AND age_s < 86400")
    assert sum(row["trials_day"] for row in rows.values()) == lately[0]["n"] > 0
