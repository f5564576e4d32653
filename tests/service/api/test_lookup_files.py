import hashlib

import pytest

from tests.service import fakes
from tests.service.conftest import PROBLEM
from tilewise.kernels.problem import parse_problem

KEY = parse_problem(PROBLEM).key
OTHER = "matmul:m=8,n=8,k=8,dtype=f32"


def look_up(client, problems=(PROBLEM,), **body):
    answer = client.post("/v1/schedules/lookup", json={"problems": list(problems), **body})
    assert answer.status_code == 200, answer.text
    return answer.json()["schedules"]


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


def test_who_has_all_files_is_told_no_more(client, tuned):
    known = {KEY: tags(client, ["cpu", "kernel"])}
    (found,) = look_up(client, files=["cpu", "kernel"], known=known)
    assert found["unchanged"] is True and found["schedule"] is None and found["files"] == {}
    (found,) = look_up(client, files=["cpu"], known=known)
    assert found["unchanged"] is True


@pytest.mark.parametrize("change", [{"kernel": "0"}, {"cpu": "0"}, {"kernel": None}])
def test_who_lacks_one_is_told_of_all(client, tuned, change):
    known = tags(client, ["cpu", "kernel"]) | change
    known = {KEY: {kind: tag for kind, tag in known.items() if tag}}
    (found,) = look_up(client, files=["cpu", "kernel"], known=known)
    assert found["unchanged"] is False and found["schedule"] and set(found["files"]) == {
        "cpu", "kernel",
    }  # fmt: skip


def test_what_is_not_stored_or_not_proven_has_no_files(client, submit, run):
    run(submit(), prover=fakes.prove_wrong)
    unproven, absent = look_up(client, (PROBLEM, OTHER), files=["cpu"], known={KEY: {"cpu": "0"}})
    assert unproven["schedule"] and unproven["files"] == {"cpu": None}
    assert absent["schedule"] is None and absent["unchanged"] is False
    assert absent["files"] == {"cpu": None}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"files": ["object"]}, "files.0"),
        ({"files": ["cpu"] * 6}, "files"),
        ({"known": {KEY: {"cpu": "x" * 129}}}, "known"),
        ({"known": {"x" * 65: {}}}, "known"),
        ({"match": "near"}, "match"),
    ],
)
def test_what_cannot_be_asked(client, body, field):
    answer = client.post("/v1/schedules/lookup", json={"problems": [PROBLEM], **body})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"].startswith(field)
