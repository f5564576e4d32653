import json

import pytest

from tests.service import fakes
from tests.service.conftest import PROBLEM, TOOLCHAIN
from tilewise.service.api.requests import MOST_PROBLEMS

OTHER = "matmul:m=8,n=8,k=8,dtype=f32"
PATH = "/v1/schedules/lookup"


def pages(client, path, **query):
    page = client.get(path, params=query).json()
    found, count = page["trials"], 1
    while page["next"]:
        page = client.get(page["next"]).json()
        found, count = found + page["trials"], count + 1
    return found, count


def failing_tune(problem, target, request, store, **options):
    store.add(fakes.failed_trial(0))
    store.add(fakes.replace(fakes.trial(1), state="pruned"))
    return fakes.tune(problem, target, request, store, **options)


@pytest.fixture
def two_problems(submit, run):
    run(submit(trials=4), tuner=failing_tune)
    run(submit(OTHER, trials=6))


def test_trials_of_all_jobs_are_paged(client, machine, two_problems):
    listed, count = pages(client, "/v1/trials", limit=3)
    assert count == 4
    assert [t["problem"] for t in listed] == [PROBLEM] * 4 + [OTHER] * 6
    assert [t["number"] for t in listed] == [*range(4), *range(6)]
    assert {(t["target"], t["toolchain"]) for t in listed} == {(machine.target, TOOLCHAIN)}
    assert [t["job"] for t in listed] == [1] * 4 + [2] * 6
    assert listed[2]["samples_us"] == pytest.approx([1e5, 1e6 / 3, 15.0])


def test_a_trial_of_one_sample_has_no_interval(client, sessions, submit, run):
    def tune(problem, target, request, store, **options):
        alone = fakes.trial(0)
        speed = alone.measurement.gflops
        measurement = fakes.replace(alone.measurement, interval=(speed, speed))
        store.add(fakes.replace(alone, samples=(0.1,), measurement=measurement))
        return fakes.tune(problem, target, request, store, **options)

    run(submit(trials=3), tuner=tune)
    alone, *others = client.get("/v1/trials").json()["trials"]
    assert alone["interval"] is None and alone["gflops"] > 0
    assert all(low < high for low, high in (trial["interval"] for trial in others))
    page = client.get("/jobs/1").text
    assert page.count("one sample") == 1


def test_hot_and_cold_are_told_apart(client, submit, run):
    for cache in ("cold", "hot"):
        run(submit(trials=2, cache=cache))
    for cache in ("hot", "cold"):
        listed, _ = pages(client, "/v1/trials", cache=cache, limit=1)
        assert [t["cache"] for t in listed] == [cache] * 2
        asked = {"problems": [PROBLEM], "cache": cache}
        (found,) = client.post(PATH, json=asked).json()["schedules"]
        assert found["schedule"]["cache"] == cache
    (either,) = client.post(PATH, json={"problems": [PROBLEM]}).json()["schedules"]
    assert either["schedule"]["cache"] == "hot"


@pytest.mark.parametrize(
    ("state", "numbers"), [("timed", [2, 3]), ("pruned", [1]), ("failed", [0])]
)
def test_trials_are_filtered_on_every_page(client, two_problems, state, numbers):
    spelled = "matmul: k=32, n=48, m=64, dtype=f32"
    listed, count = pages(
        client, "/v1/trials", problem=spelled, target="host", state=state, limit=1
    )
    assert [(t["problem"], t["number"]) for t in listed] == [(PROBLEM, n) for n in numbers]
    assert count == len(numbers)
    assert pages(client, "/v1/trials", target="cpu:neoverse-v2") == ([], 1)
    of_job, _ = pages(client, "/v1/jobs/1/trials", state=state, limit=1)
    assert [t["number"] for t in of_job] == numbers


def test_trials_that_a_job_took_over_are_shown_once(client, submit, run, tuned):
    run(submit(trials=7))
    run(submit(trials=9))
    listed, _ = pages(client, "/v1/trials", problem=PROBLEM, limit=2)
    assert [(t["job"], t["number"]) for t in listed] == [
        *((1, n) for n in range(4)), *((2, n) for n in range(4, 7)), (3, 7), (3, 8)
    ]  # fmt: skip


def test_a_lookup_answers_in_the_order_of_the_question(client, machine, two_problems):
    as_object = {"op": "matmul", "m": 64, "n": 48, "k": 32, "dtype": "f32"}
    asked = [OTHER, "matmul:m=9,n=9,k=9,dtype=f32", as_object, OTHER]
    answer = client.post(PATH, json={"problems": asked}).json()
    assert answer["target"] == machine.target
    assert [one["problem"] for one in answer["schedules"]] == [OTHER, asked[1], PROBLEM, OTHER]
    single = client.get("/v1/schedules", params={"problem": OTHER}).json()
    first, none, other, again = (one["schedule"] for one in answer["schedules"])
    # Counting a space takes a while, so it is done for one schedule at a time.
    assert first == again == single | {"space": None} and none is None
    assert single["space"]["schedules"] > 1
    assert other["key"] != first["key"]


def test_a_lookup_prefers_what_is_fresh(client_factory, submit, run, tuned):
    run(submit(toolchain="another", trials=9))
    for toolchain, gflops, stale in (
        (TOOLCHAIN, 13.0, False), ("another", 18.0, False), ("a newer one", 18.0, True)
    ):  # fmt: skip
        answer = client_factory(toolchain=toolchain).post(PATH, json={"problems": [PROBLEM]})
        found = answer.json()["schedules"][0]["schedule"]
        assert (found["best"]["gflops"], found["stale"]) == (gflops, stale)


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({"problems": [OTHER, "matmul:m=0,n=1,k=1,dtype=f32"]}, "problems.1", "out of range"),
        ({"problems": [OTHER, 7]}, "problems.1", "a problem string, or its JSON object"),
        ({"problems": OTHER}, "problems", "valid list"),
        ({"problems": [OTHER] * (MOST_PROBLEMS + 1)}, "problems", f"at most {MOST_PROBLEMS}"),
        ({"problems": [], "target": "gpu"}, "target", "neither 'host' nor"),
        ({"problem": []}, "problems", "is missing"),
    ],
)
def test_a_bad_lookup_names_what_is_wrong(client, body, field, message):
    details = client.post(PATH, json=body).json()
    errors = {error["field"]: error["message"] for error in details["errors"]}
    assert message in errors[field], json.dumps(details)
