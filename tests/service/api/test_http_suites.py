import copy
from datetime import UTC, datetime
from math import exp, log
from typing import Any

import pytest
from sqlalchemy import text

from benchmarks.watching.suite_reports import reports
from tests.service.api.answers import assert_problem, rows
from tilewise.service.db import writing

TARGET = "cpu:znver5,threads=1"
ADDRESS = "/v1/suite-reports"


def some_reports(days=2):
    now = datetime.now(UTC)
    return [one["report"] for one in reports(TARGET, ("tilewise 1", "tilewise 2"), now, days)]


def test_a_report_is_stored_once_and_given_back_as_it_was_sent(client):
    sent, other, *_ = some_reports()
    answer = client.post(ADDRESS, json=sent)
    assert answer.status_code == 201 and answer.headers["location"] == f"{ADDRESS}/1"
    told = answer.json()
    assert told["suite"] == "square" and told["toolchain"] == "tilewise 1"
    ratios = [row["ratio"] for row in sent["problems"] if row["ratio"]]
    assert told["geomean_ratio"] == pytest.approx(exp(sum(map(log, ratios)) / len(ratios)))
    assert (told["counted"], told["left_out"]) == (len(ratios), 40 - len(ratios))
    whole = client.get(answer.headers["location"]).json()
    assert whole.pop("report") == sent and whole == told
    assert [client.post(ADDRESS, json=one).status_code for one in (sent, other)] == [200, 201]
    assert len(client.get(ADDRESS).json()["reports"]) == 2
    assert_problem(client.get(f"{ADDRESS}/99"), 404)
    for number in ("0", str(2**31), "x"):
        assert client.get(f"{ADDRESS}/{number}").status_code in (404, 422)


def test_reports_come_in_pages_newest_first(client):
    for sent in some_reports(3):
        client.post(ADDRESS, json=sent)
    found = rows(client, ADDRESS, "reports", suite="square", limit=2)
    assert [row["id"] for row in found] == [5, 3, 1]
    assert client.get(f"{ADDRESS}?suite=none").json()["reports"] == []
    assert client.get(f"{ADDRESS}?suite=a%00").status_code == 422, "PostgreSQL takes no NUL"


def changed(path, value):
    made = copy.deepcopy(some_reports()[0])
    *parents, last = path.split(".")
    at: Any = made
    for name in parents:
        at = at[int(name) if isinstance(at, list) else name]
    at[int(last) if isinstance(at, list) else last] = value
    return made


@pytest.mark.full
@pytest.mark.parametrize(("path", "value", "said"), [
    ("suite", "", "suite"), ("suite", "a\0b", "cannot be printed"), ("suite", "x" * 201, "suite"),
    ("source", 7, "source"), ("problems", [], "problems"), ("problems.0", "matmul", "problems.0"),
    ("problems.0.problem", "matmul:m=0,n=1,k=1,dtype=f32", "m=0"),
    ("problems.0.problem", "matmul:n=64,m=16,k=70,dtype=f32", "is spelled"),
    ("problems.0.count", True, "count"), ("problems.0.ours.gflops", 0.0, "gflops"),
    ("problems.0.ours.gflops", "fast", "gflops"), ("problems.0.ours.interval", [1.0], "interval"),
    ("problems.0.nonsense", 1, "nonsense"), ("problems.0.ratio", 123.0, "geomean_ratio"),
    ("problems.0.ratio", None, "counted"), ("counted", 3, "counted"),
    ("geomean_ratio", None, "geomean_ratio"), ("weighted", None, "weighted"),
    ("machine.bandwidth_gbs", -1.0, "bandwidth_gbs"),
    ("machine.peers", {f"p{n}": "1" for n in range(31)}, "peers"),
    ("machine.toolchain", "t" * 256, "toolchain"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused_with_its_field(client, path, value, said):
    answer = client.post(ADDRESS, json=changed(path, value))
    assert answer.status_code == 422, answer.text
    assert said in answer.text
    assert client.get(ADDRESS).json()["reports"] == []


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_json_has_not_are_refused(client, number):
    body = client.build_request("POST", ADDRESS, json=changed("geomean_ratio", 4.25)).content
    sent = body.replace(b"4.25", number.encode())
    assert sent != body and client.post(ADDRESS, content=sent).status_code == 422


@pytest.mark.sqlite_only("its columns alone take values of another type")
@pytest.mark.parametrize(
    "edit",
    ["report = '{'", "report = '{\"suite\": 1}'", "geomean_ratio = 'much'", "suite = x'ff'",
     "created_at = 'today'"],
)  # fmt: skip
def test_a_damaged_row_says_so_and_stops_no_other(client, sessions, edit):
    for sent in some_reports():
        client.post(ADDRESS, json=sent)
    with writing(sessions) as session:
        session.execute(text(f"UPDATE suite_reports SET {edit} WHERE id = 3"))
    answer = client.get(f"{ADDRESS}/3")
    assert answer.status_code == 500 and answer.json()["type"] == "urn:tilewise:damaged-row"
    listed = client.get(ADDRESS).json()
    assert {1, 2, 4} <= {row["id"] for row in listed["reports"]}
    assert len(listed["reports"]) + listed["unreadable"] == 4
    for path in ("/suites", "/suites/1", "/suites/4"):
        assert client.get(path).status_code == 200, path
    assert client.get("/plots/suites/1/history").status_code == 200
