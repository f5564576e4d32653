import hashlib

import pytest

from tests.service import fakes
from tests.service.api.answers import assert_problem
from tests.service.conftest import KEY, OTHER, PROBLEM, TOOLCHAIN
from tilewise.kernels.problem import parse_problem
from tilewise.service.api.requests import MOST_PROBLEMS
from tilewise.service.db import reading
from tilewise.service.results import predictions

UNSEEN = "matmul:m=200,n=300,k=400,dtype=f32"
LOOKUP = "/v1/schedules/lookup"


def look_up(client, problems=(PROBLEM,), **body):
    answer = client.post(LOOKUP, json={"problems": list(problems), **body})
    assert answer.status_code == 200, answer.text
    return answer.json()["schedules"]


def test_a_lookup_answers_in_the_order_of_the_question(client, machine, submit, run, tuned):
    as_object = {"op": "matmul", "m": 64, "n": 48, "k": 32, "dtype": "f32"}
    run(submit(OTHER, trials=6))
    asked = [OTHER, "matmul:m=9,n=9,k=9,dtype=f32", as_object, OTHER]
    answer = client.post(LOOKUP, json={"problems": asked}).json()
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
        client = client_factory(toolchain=toolchain)
        found = look_up(client)[0]["schedule"]
        single = client.get("/v1/schedules", params={"problem": PROBLEM}).json()
        assert found == single | {"space": None}
        assert (found["best"]["gflops"], found["stale"]) == (gflops, stale)


def test_each_file_has_the_tag_that_its_place_answers_with(client, tuned):
    (found,) = look_up(client, files=["cpu", "kernel", "iree", "air"])
    assert (found["problem"], found["key"], found["unchanged"]) == (PROBLEM, KEY, False)
    assert found["files"]["iree"] is None, "there are none of this flavor"
    assert found["files"]["air"]["etag"] is None, "nobody has asked for it yet"
    for kind in ("cpu", "kernel"):
        named = found["files"][kind]
        answer = client.get(named["path"])
        assert answer.status_code == 200
        assert answer.headers["ETag"] == f'"{named["etag"]}"'
        again = client.get(named["path"], headers={"If-None-Match": f'"{named["etag"]}"'})
        assert again.status_code == 304
    script = client.get(found["files"]["cpu"]["path"]).text
    assert found["files"]["cpu"]["etag"] == hashlib.sha256(script.encode()).hexdigest()
    assert found["schedule"]["proof"]["sha256"] == found["files"]["cpu"]["etag"]


def tags(client, files):
    (found,) = look_up(client, files=files)
    return {kind: found["files"][kind]["etag"] for kind in files}


def test_files_are_listed_unless_all_are_known(client, tuned):
    own = tags(client, ["cpu", "kernel"])
    for files in (["cpu", "kernel"], ["cpu"]):
        (found,) = look_up(client, files=files, known={KEY: own})
        assert (found["unchanged"], found["schedule"], found["files"]) == (True, None, {})
    for known in (own | {"kernel": "0"}, own | {"cpu": "0"}, {"cpu": own["cpu"]}):
        (found,) = look_up(client, files=["cpu", "kernel"], known={KEY: known})
        assert found["unchanged"] is False and found["schedule"]
        assert set(found["files"]) == {"cpu", "kernel"}


def test_what_is_not_stored_or_not_proven_has_no_files(client, submit, run):
    run(submit(), prover=fakes.prove_wrong)
    unproven, absent = look_up(client, (PROBLEM, OTHER), files=["cpu"], known={KEY: {"cpu": "0"}})
    assert unproven["schedule"] and unproven["files"] == {"cpu": None}
    assert absent["schedule"] is None and absent["unchanged"] is False
    assert absent["files"] == {"cpu": None}


@pytest.mark.parametrize(("body", "field", "message"), [
    ({"problems": [OTHER, "matmul:m=0,n=1,k=1,dtype=f32"]}, "problems.1", "out of range"),
    ({"problems": [OTHER, 7]}, "problems.1", "a problem string, or its JSON object"),
    ({"problems": [OTHER] * (MOST_PROBLEMS + 1)}, "problems", f"at most {MOST_PROBLEMS}"),
    ({"problems": OTHER}, "problems", "valid list"), ({"target": "gpu"}, "target", "neither"),
    ({"problem": []}, "problem", "unknown field"), ({"files": ["object"]}, "files.0", ""),
    ({"files": ["cpu"] * 6}, "files", ""), ({"known": {KEY: {"cpu": "x" * 129}}}, "known", ""),
    ({"known": {"x" * 65: {}}}, "known", ""), ({"match": "near"}, "match", ""),
    ({"trials": -1}, "trials", "1 to"), ({"trials": 1, "target": "cpu:z80"}, "target", "machine"),
])  # fmt: skip
def test_a_bad_lookup_names_what_is_wrong(client, body, field, message):
    details = assert_problem(client.post(LOOKUP, json={"problems": [PROBLEM], **body}), 422)
    (error,) = details["errors"]
    assert error["field"].startswith(field) and message in error["message"]


def test_a_prediction_has_steps_and_an_expected_speed_and_is_not_stored(client, tuned):
    before, unknown = look_up(client, (PROBLEM, UNSEEN))
    stored, unseen = look_up(client, (PROBLEM, UNSEEN), predict=True)
    assert stored == before and stored["predicted"] is unknown["predicted"] is None
    assert unseen["schedule"] is None and unseen["predicted"]["grade"] == "predicted"
    (found,) = look_up(client, [UNSEEN], predict=True)
    predicted = found["predicted"]
    low, high = predicted["interval"]
    assert predicted["steps"] and low < predicted["gflops"] < high and predicted["time_us"] > 0
    (found,) = look_up(client, [UNSEEN], predict=True, cache="cold")
    assert found["schedule"] is None and found["predicted"] is None
    assert client.get("/v1/schedules", params={"problem": UNSEEN}).status_code == 404
    (found,) = look_up(client, [UNSEEN], predict=True, target="cpu:znver1,threads=1")
    assert found["predicted"] is None, "nothing is known of this processor"


def test_what_is_not_stored_is_searched_by_one_job_on_request(client, tuned, run):
    stored, unseen, same = look_up(client, (PROBLEM, UNSEEN, UNSEEN), trials=5)
    assert stored["job"] is unseen["predicted"] is None and unseen["job"] == same["job"]
    (later,) = look_up(client, [UNSEEN], trials=9, predict=True)
    job = client.get(f"/v1/jobs/{later['job']}").json()
    assert later["predicted"] and job["id"] == unseen["job"] and job["trials"]["asked"] == 9
    run(job["id"])
    (found,) = look_up(client, [UNSEEN], trials=9, predict=True)
    assert found["schedule"] and found["job"] is found["predicted"] is None


def test_results_of_near_problems_are_learnt_from(client, tuned, sessions, machine):
    stored = look_up(client, [PROBLEM])[0]["schedule"]["best"]
    wanted = [parse_problem(UNSEEN)]
    with reading(sessions) as session:
        (found,) = predictions.winners(session, wanted, machine.target)
        assert predictions.winners(session, wanted, "cpu:znver1,threads=1") == []
    assert found.problem.canonical == PROBLEM and found.points[0][1] == stored["time_us"]
