from dataclasses import replace

import pytest
from sqlalchemy import update

from tests.service import fakes
from tests.service.api.answers import assert_problem, assert_refused, rows
from tests.service.conftest import KEY, PROBLEM, TOOLCHAIN
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import instruction_of, loop_nest
from tilewise.kernels.target import described, parse_target, resolve
from tilewise.search.space.space import Space
from tilewise.service.db import models, reading, writing
from tilewise.service.jobs import queue
from tilewise.service.results import integrity, nearest
from tilewise.service.results.stored import ResultKey

LOOKUP = "/v1/schedules/lookup"
SCRIPT = f"/v1/schedules/{KEY}/script"


def get(client, **query):
    return client.get("/v1/schedules", params={"problem": PROBLEM, **query})


def test_the_result_has_the_form_of_the_contract(client, machine, tuned):
    result = get(client).json()
    assert result["problem"] == PROBLEM and result["key"] == KEY
    assert result["target"] == machine.target and result["toolchain"] == TOOLCHAIN
    assert result["trials"] == {"asked": 4, "timed": 4, "pruned": 0, "failed": 0}
    best = fakes.schedule(3)
    nest = loop_nest(parse_problem(PROBLEM), best)
    assert result["best"] == {
        "hash": best.hash, "steps": best.to_json(),
        "instruction": instruction_of(nest, described(machine.cpu, machine.features)),
        "quality": "good", "grade": "proven", "peak_fraction": 0.13,
        "gflops": 13.0, "interval": [13.0 * 0.99, 13.0 * 1.01],
        "time_us": fakes.measurement(13.0).time_us, "scratch_bytes": {"A": 64, "B": 4096},
        "measured": {"samples": 21, "placements": 6, "rejected": 2, "disturbed": 0, "cold": None,
                     "accuracy": None},
    }  # fmt: skip
    space = Space(parse_problem(PROBLEM), resolve(machine.target))
    assert result["space"] == {"schedules": space.size, "exact": False}
    assert result["proof"]["applied"] and result["proof"]["executed"]
    assert result["proof"]["mlir"] == "iree-base-compiler 3.13.0" and result["elapsed_s"] > 0
    assert (result["complete"], result["stale"], result["peers"]) == (True, False, {})
    as_json = '{"op":"matmul","m":64,"n":48,"k":32,"dtype":"f32"}'
    for spelled in ("matmul: k=32, n=48, m=64, dtype=f32", as_json):
        assert get(client, problem=spelled, target="host").json()["key"] == KEY


def test_what_is_not_stored_is_not_found(client, tuned):
    assert_problem(get(client, problem=PROBLEM + ",bias"), 404, "POST it to /v1/jobs")
    assert_problem(client.get(f"{SCRIPT}?flavor=iree-spec"), 404, "no proven iree-spec script")
    assert get(client, target="cpu:neoverse-v2").status_code == 404
    assert client.get(f"/v1/schedules/{'0' * 64}/script").status_code == 404


def test_a_faster_result_replaces_the_stored_one_and_a_slower_does_not(client, submit, run, tuned):
    run(submit(trials=6))
    result = get(client).json()
    assert (result["best"]["gflops"], result["trials"]["asked"]) == (15.0, 6)

    def unlucky(*args, **kwargs):
        found = fakes.tune(*args, **kwargs)
        slow = fakes.Winner(fakes.schedule(), fakes.measurement(1.0), 100.0)
        return fakes.replace(found, best=slow)

    job_id = submit(trials=8)
    run(job_id, tuner=unlucky)
    own = client.get(f"/v1/jobs/{job_id}").json()["best"]
    assert (own["gflops"], own["peak_fraction"]) == (17.0, None), "its own fastest trial"
    result = get(client).json()
    assert (result["best"]["gflops"], result["trials"]["asked"]) == (15.0, 6)
    again = client.post("/v1/jobs", json={"problem": PROBLEM, "trials": 8})
    assert again.status_code == 200, "8 trials were spent, so they are not spent again"


@pytest.mark.parametrize("prover", [fakes.prove_wrong, fakes.prove_unapplied])
def test_a_script_that_was_not_proven_is_never_served(client, submit, run, prover):
    assert run(submit(), prover=prover).state == "done"
    assert client.get(SCRIPT).status_code == 404
    proof = get(client).json()["proof"]
    assert proof["failure"] in ("wrong", "apply") and proof["message"]


def test_the_fastest_proven_script_is_served(client, submit, run):
    best, second, third = (fakes.schedule(n) for n in (3, 2, 1))
    speeds = {best.hash: (900.0, False), second.hash: (30.0, True), third.hash: (20.0, True)}

    def prove(problem, schedule, **_how):
        gflops, ok = speeds[schedule.hash]
        proof = fakes.prove(problem, schedule)
        return fakes.replace(proof, gflops=gflops, ok=ok)

    run(submit(), prover=prove)
    assert second.hash in client.get(SCRIPT).text
    result = get(client).json()
    assert result["best"]["hash"] == best.hash and result["proof"]["gflops"] == 30.0


def test_hot_and_cold_results_are_told_apart(client, sessions, submit, run, tuned):
    cold = submit(cache="cold", trials=9)
    assert cold != tuned
    with reading(sessions) as session:
        assert queue.get(session, cold).cache == "cold"
        assert queue.trials_page(session, cold) == [], "hot times are no cold ones"
    given = []

    def tune(problem, target, request, store, **hooks):
        given.append(request.cache)
        return fakes.tune(problem, target, request, store, **hooks, peak_of=50.0)

    assert run(cold, tuner=tune).state == "done"
    assert given == ["cold"]
    with pytest.raises(AssertionError, match="a stored schedule answers this"):
        submit(cache="cold")
    tags = set()
    for cache, share in (("hot", 0.13), ("cold", 0.36)):
        listed = rows(client, "/v1/trials", "trials", cache=cache, limit=3)
        assert {trial["cache"] for trial in listed} == {cache}
        asked = {"problems": [PROBLEM], "cache": cache, "files": ["cpu", "kernel"]}
        (found,) = client.post(LOOKUP, json=asked).json()["schedules"]
        assert found["schedule"]["cache"] == cache
        assert found["schedule"]["best"]["peak_fraction"] == share
        for named in found["files"].values():
            assert client.get(named["path"]).headers["ETag"] == f'"{named["etag"]}"'
            tags.add(named["etag"])
    assert len(tags) == 4
    (either,) = client.post(LOOKUP, json={"problems": [PROBLEM]}).json()["schedules"]
    assert either["schedule"]["cache"] == "hot"


def test_the_mode_over_http(client, submit, run):
    body = {"problem": PROBLEM, "trials": 4, "cache": "cold"}
    job = client.post("/v1/jobs", json=body).json()
    assert job["cache"] == "cold"
    hot = client.post("/v1/jobs", json=body | {"cache": "hot"}).json()["id"]
    assert client.post("/v1/jobs", json=body).json()["id"] == job["id"] != hot
    run(job["id"])
    assert client.post("/v1/jobs", json=body).json()["cache"] == "cold"
    assert get(client).json()["cache"] == "cold" and get(client, cache="hot").status_code == 404
    kernel = f"/v1/schedules/{job['key']}/kernel"
    for mode, status in (("cold", 200), ("hot", 404), ("lukewarm", 422)):
        assert client.get(kernel, params={"cache": mode}).status_code == status
    trials = client.get(f"/v1/jobs/{job['id']}/trials").json()["trials"]
    assert {trial["cache"] for trial in trials} == {"cold"}
    assert_refused(client.post("/v1/jobs", json=body | {"cache": "lukewarm"}), "cache")


def match(kind, **differs):
    return {"kind": kind, "differs": differs, "reason": None, "range": None}


@pytest.fixture
def moved(sessions, tuned, machine):
    """Says of the stored schedule and its proofs that they are of another processor."""

    def make(cpu="other", features=machine.features, target=None):
        target = target or replace(machine, cpu=cpu, features=tuple(features)).target
        with writing(sessions) as session:
            session.execute(update(models.Job).values(target=target))
            row = session.query(models.Schedule).one()
            row.target = target
            work = ResultKey.of(row)
            row.digest = integrity.result_digest(work, row)
            for proof in session.query(models.Proof):
                proof.digest = integrity.proof_digest(work, proof)
        return target

    return make


def test_the_targets_own_is_exact_and_one_of_another_toolchain_is_labelled(
    client, client_factory, machine, tuned
):
    script, newer = client.get(SCRIPT), client_factory(toolchain="a newer one")
    assert script.headers["Tilewise-Match"] == "exact"
    assert script.headers["Cache-Control"] == "no-cache"
    wanted = match("toolchain", toolchain={"asked": "a newer one", "given": TOOLCHAIN})
    for asked in ("exact", "nearest"):
        assert get(client, match=asked).json()["match"] == match("exact")
        found = get(newer, match=asked).json()
        assert found["match"] == wanted and found["stale"]
    for name in ("script", "script?match=nearest"):
        headers = newer.get(f"/v1/schedules/{KEY}/{name}").headers
        assert (headers["Tilewise-Match"], headers["Tilewise-Stale"]) == ("toolchain", "true")
        assert headers["Tilewise-Toolchain"] == TOOLCHAIN
        assert headers["Tilewise-Target"] == machine.target


def test_one_of_another_processor_is_given_to_who_asks_for_it_alone(client, moved, machine):
    given = moved(features=[name for name in machine.features if name != "sha"])
    assert {get(client, match=one).status_code for one in ("exact", "range")} == {404}
    assert client.get(SCRIPT).status_code == 404
    found = get(client, match="nearest").json()
    assert found["match"] == match("processor", target={"asked": machine.target, "given": given})
    assert found["target"] == given and not found["stale"]
    script = client.get(SCRIPT, params={"match": "nearest"})
    assert script.status_code == 200
    assert script.headers["Tilewise-Match"] == "processor"
    assert script.headers["Tilewise-Target"] == given
    kernel = client.get(f"/v1/schedules/{KEY}/kernel", params={"match": "nearest"})
    assert kernel.headers["Tilewise-Match"] == "processor"


def test_what_cannot_run_here_or_has_other_threads_never_stands_in(client, moved, machine):
    other = "haswell" if "avx512f" in resolve("host").features else "skylake-avx512"
    for target in (f"cpu:{other},threads=1", "cpu:z80,threads=1", "cpu:?"):
        moved(target=target)
        assert get(client, match="nearest").status_code == 404
    moved()
    two = replace(parse_target(machine.target), threads=2).canonical
    assert get(client, match="nearest", target=two).status_code == 404


def test_the_most_alike_processor_comes_first(sessions, moved, machine):
    avx2 = ("avx", "avx2", "fma", "f16c", "bmi")
    avx512 = (*avx2, "avx512f", "avx512bw", "avx512vl")
    vnni = (*avx512, "avx512vnni")
    bf16 = (*vnni, "avx512bf16", "avx512vbmi")
    own = replace(machine, cpu="asked", features=bf16).named
    others = {"a": avx512, "b": vnni, "c": (*bf16, "avxvnni"), "d": avx2, "e": bf16}
    targets = {c: replace(machine, cpu=c, features=some).target for c, some in others.items()}
    unknown = [f"cpu:{cpu},threads=1,features=unknown" for cpu in ("asked", "skylake-avx512")]
    moved(target=targets["a"])
    with writing(sessions) as session:
        first = session.query(models.Schedule).one()
        columns = [c.key for c in models.Schedule.__table__.columns if c.key != "id"]
        for target in (*unknown, *list(targets.values())[1:]):
            values = {name: getattr(first, name) for name in columns}
            session.add(models.Schedule(**{**values, "target": target}))
    with sessions() as session:
        found = nearest.compatible_targets(session, [KEY], own.canonical)
        of_b = nearest.compatible_targets(session, [KEY], targets["b"])
        nothing = nearest.compatible_targets(session, [KEY], unknown[0])
    # c has more than was asked for, and d registers of half the width.
    assert found == [targets["e"], targets["b"], targets["a"], unknown[0]]
    assert of_b == [targets["a"]] and nothing == []
