import html
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from fastapi.testclient import TestClient

from benchmarks.watching.suite_reports import reports
from tests.service.conftest import PROBLEM
from tests.service.dashboard.conftest import store_reports
from tilewise.bench import table
from tilewise.service.dashboard.suites import Change, changes

HOSTILE = "<script>alert('1')</script>\"'&<img src=x onerror=alert(2)>"


def report() -> dict[str, Any]:
    told = reports("cpu:znver5,threads=1", ("t",), datetime.now(UTC), 1)
    return next(iter(told))["report"]


def words(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", page))


def test_the_table_has_what_the_command_prints(client: TestClient) -> None:
    sent = report()
    client.post("/v1/suite-reports", json=sent)
    shown = words(client.get("/suites/1").text).split()
    for line in table.table(sent).splitlines()[1:]:
        if line.startswith("matmul"):
            name, count, *speeds = line.split()
            assert name in shown and count in shown
            for speed in speeds:
                for part in speed.replace("-", " ").split():
                    assert part in shown or f"{part}x" in shown, (line, part)
    assert f"{sent['geomean_ratio']:.2f}x" in shown
    assert "left out" in " ".join(shown)


def test_each_suite_on_each_target_is_listed_by_its_newest_report(client: TestClient) -> None:
    store_reports(client)
    page = client.get("/suites").text
    assert re.findall(r'href="/suites/(\d)">(\w+)<', page) == [("4", "resnet50"), ("3", "square")]
    assert "No suite" not in page
    one = client.get("/suites/3").text
    assert 'href="/suites/1"' in one and 'href="/suites/2"' not in one


def test_a_problem_that_is_stored_has_a_link(client: TestClient, tuned: int) -> None:
    sent = report()
    sent["problems"][0]["problem"] = PROBLEM
    client.post("/v1/suite-reports", json=sent)
    links = re.findall(r'href="(/problems/\w+)"', client.get("/suites/1").text)
    assert len(links) == 1 and client.get(links[0]).status_code == 200


def test_nothing_of_a_report_is_markup(client: TestClient) -> None:
    sent = report()
    sent["suite"], sent["source"] = HOSTILE, HOSTILE
    sent["machine"] |= {"processor": HOSTILE, "target": HOSTILE[:90], "system": HOSTILE}
    sent["machine"]["toolchain"], sent["machine"]["peers"] = HOSTILE, {HOSTILE: HOSTILE}
    for row in sent["problems"]:
        row["label"], row["reason"] = HOSTILE, HOSTILE
    assert client.post("/v1/suite-reports", json=sent).status_code == 201
    for path in ("/suites", "/suites/1"):
        page = client.get(path).text
        assert "<script>" not in page and "<img" not in page and "&lt;script&gt;" in page


def problem(name: str, low: float, high: float) -> dict[str, Any]:
    return {"problem": name, "ours": {"gflops": (low + high) / 2, "interval": [low, high]}}


def test_a_change_is_told_apart_by_the_intervals() -> None:
    absent = {"problem": "d", "ours": None}
    new = {"problems": [problem("a", 9, 11), problem("b", 9, 11), problem("c", 1, 2), absent]}
    old = {"problems": [problem("b", 4, 6), problem("a", 10, 14), problem("d", 1, 2)]}
    assert changes(new, old) == [Change(10 / 12, False), Change(2.0, True), None, None]
    assert changes(new, None) == [None] * 4


@pytest.mark.parametrize("path", ["/suites/99", "/suites/0", "/suites/x", "/suites/1?page=0"])
def test_a_report_that_is_not_there_is_a_page(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code in (404, 422) and "<h1>" in answer.text
    assert answer.headers["content-security-policy"]


def test_plots_of_a_suite_have_what_is_stored(client: TestClient) -> None:
    store_reports(client)
    spec = client.get("/plots/suites/3/history").json()
    series = {row["series"] for row in spec["data"]["values"]}
    assert len(spec["data"]["values"]) == 4 and len(series) == 2
    assert "square" in str(client.get("/plots/suites/3/roofline").json()["title"])
    assert client.get("/plots/suites/99/history").status_code == 404
