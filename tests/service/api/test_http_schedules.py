import pytest

from tests.service import fakes
from tests.service.conftest import PROBLEM, TOOLCHAIN
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import instruction_of, loop_nest
from tilewise.kernels.target import described, resolve
from tilewise.search.space.space import Space

KEY = parse_problem(PROBLEM).key


def test_the_result_has_the_form_of_the_contract(client, machine, tuned):
    result = client.get("/v1/schedules", params={"problem": PROBLEM}).json()
    assert result["problem"] == PROBLEM and result["key"] == KEY
    assert result["target"] == machine.target and result["toolchain"] == TOOLCHAIN
    assert result["trials"] == {"asked": 4, "timed": 4, "pruned": 0, "failed": 0}
    best = fakes.schedule(3)
    assert result["best"] == {
        "hash": best.hash,
        "steps": best.to_json(),
        "instruction": instruction_of(
            loop_nest(parse_problem(PROBLEM), best), described(machine.cpu, machine.features)
        ),
        "quality": "good",
        "grade": "proven",
        "gflops": 13.0,
        "interval": [13.0 * 0.99, 13.0 * 1.01],
        "time_us": fakes.measurement(13.0).time_us,
        "peak_fraction": 0.13,
        "scratch_bytes": {"A": 64, "B": 4096},
        "measured": {
            "samples": 21,
            "placements": 6,
            "rejected": 2,
            "disturbed": 0,
            "cold": None,
            "accuracy": None,
        },
    }
    space = Space(parse_problem(PROBLEM), resolve(machine.target))
    assert result["space"] == {"schedules": space.size, "exact": False}
    assert result["peers"] == {}
    assert result["proof"]["applied"] and result["proof"]["executed"]
    assert result["proof"]["mlir"] == "iree-base-compiler 3.13.0"
    assert result["complete"] is True and result["stale"] is False
    assert result["elapsed_s"] > 0


@pytest.mark.parametrize(
    "problem",
    ["matmul: k=32, n=48, m=64, dtype=f32", '{"op":"matmul","m":64,"n":48,"k":32,"dtype":"f32"}'],
)
def test_any_spelling_finds_it(client, tuned, problem):
    answer = client.get("/v1/schedules", params={"problem": problem, "target": "host"})
    assert answer.json()["key"] == KEY


def test_what_is_not_stored_is_not_found(client, tuned):
    answer = client.get("/v1/schedules", params={"problem": PROBLEM + ",bias"})
    assert answer.status_code == 404
    assert "POST it to /v1/jobs" in answer.json()["detail"]
    other = {"problem": PROBLEM, "target": "cpu:neoverse-v2"}
    assert client.get("/v1/schedules", params=other).status_code == 404
    assert client.get(f"/v1/schedules/{'0' * 64}/script").status_code == 404


def test_a_schedule_of_another_toolchain_is_marked(client_factory, tuned):
    newer = client_factory(toolchain="a newer one")
    assert newer.get("/v1/schedules", params={"problem": PROBLEM}).json()["stale"] is True
    assert newer.get(f"/v1/schedules/{KEY}/script").headers["Tilewise-Stale"] == "true"


def test_a_fresh_schedule_goes_before_a_stale_one(client, submit, run, tuned):
    run(submit(toolchain="another", trials=9))
    result = client.get("/v1/schedules", params={"problem": PROBLEM}).json()
    assert (result["stale"], result["best"]["gflops"]) == (False, 13.0)


def test_a_faster_result_replaces_the_stored_one_and_a_slower_does_not(client, submit, run, tuned):
    run(submit(trials=6))
    result = client.get("/v1/schedules", params={"problem": PROBLEM}).json()
    assert (result["best"]["gflops"], result["trials"]["asked"]) == (15.0, 6)

    def unlucky(*args, **kwargs):
        found = fakes.tune(*args, **kwargs)
        slow = fakes.Winner(fakes.schedule(), fakes.measurement(1.0), 100.0)
        return fakes.replace(found, best=slow)

    job_id = submit(trials=8)
    run(job_id, tuner=unlucky)
    own = client.get(f"/v1/jobs/{job_id}").json()["best"]
    assert (own["gflops"], own["peak_fraction"]) == (17.0, None), "its own fastest trial"
    result = client.get("/v1/schedules", params={"problem": PROBLEM}).json()
    assert (result["best"]["gflops"], result["trials"]["asked"]) == (15.0, 6)
    again = client.post("/v1/jobs", json={"problem": PROBLEM, "trials": 8})
    assert again.status_code == 200, "8 trials were spent, so they are not spent again"


def test_flavors_that_are_not_stored_are_not_found(client, tuned):
    answer = client.get(f"/v1/schedules/{KEY}/script?flavor=iree-spec")
    assert answer.status_code == 404
    assert answer.json()["detail"].startswith("no proven iree-spec script")


@pytest.mark.parametrize("prover", [fakes.prove_wrong, fakes.prove_unapplied])
def test_a_script_that_was_not_proven_is_never_served(client, submit, run, prover):
    assert run(submit(), prover=prover).state == "done"
    assert client.get(f"/v1/schedules/{KEY}/script").status_code == 404
    proof = client.get("/v1/schedules", params={"problem": PROBLEM}).json()["proof"]
    assert proof["failure"] in ("wrong", "apply") and proof["message"]


def test_the_fastest_proven_script_is_served(client, submit, run):
    best, second, third = (fakes.schedule(n) for n in (3, 2, 1))
    speeds = {best.hash: (900.0, False), second.hash: (30.0, True), third.hash: (20.0, True)}

    def prove(problem, schedule, *, seed, seconds, threads):
        gflops, ok = speeds[schedule.hash]
        proof = fakes.prove(problem, schedule, seed=seed)
        return fakes.replace(proof, gflops=gflops, ok=ok)

    run(submit(), prover=prove)
    assert second.hash in client.get(f"/v1/schedules/{KEY}/script").text
    result = client.get("/v1/schedules", params={"problem": PROBLEM}).json()
    assert result["best"]["hash"] == best.hash and result["proof"]["gflops"] == 30.0
