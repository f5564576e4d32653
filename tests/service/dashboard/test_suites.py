import re
from datetime import UTC, datetime

from benchmarks.watching.suite_reports import reports
from tests.service.conftest import PROBLEM
from tests.service.dashboard.answers import HOSTILE, assert_no_markup, words
from tests.service.dashboard.conftest import store_reports
from tilewise.bench import table
from tilewise.service.dashboard.suites import Change, changes


def report():
    return next(reports("cpu:znver5,threads=1", ("t",), datetime.now(UTC), 1))["report"]


def test_the_table_has_what_the_command_prints(client, tuned):
    sent = report()
    sent["problems"][0]["problem"] = PROBLEM
    client.post("/v1/suite-reports", json=sent)
    page = client.get("/suites/1").text
    (link,) = re.findall(r'href="(/problems/\w+)"', page)
    assert client.get(link).status_code == 200, "one problem is stored"
    shown = words(page).split()
    for line in table.table(sent).splitlines()[1:]:
        if line.startswith("matmul"):
            name, count, *speeds = line.split()
            assert name in shown and count in shown
            for speed in speeds:
                for part in speed.replace("-", " ").split():
                    assert part in shown or f"{part}x" in shown, (line, part)
    assert f"{sent['geomean_ratio']:.2f}x" in shown and "left out" in " ".join(shown)


def test_each_suite_on_each_target_has_its_newest_report_and_plots(client):
    store_reports(client)
    page = client.get("/suites").text
    assert re.findall(r'href="/suites/(\d)">(\w+)<', page) == [("4", "resnet50"), ("3", "square")]
    assert "No suite" not in page
    one = client.get("/suites/3").text
    assert 'href="/suites/1"' in one and 'href="/suites/2"' not in one
    spec = client.get("/plots/suites/3/history").json()
    series = {row["series"] for row in spec["data"]["values"]}
    assert len(spec["data"]["values"]) == 4 and len(series) == 2
    assert "square" in str(client.get("/plots/suites/3/roofline").json()["title"])
    assert client.get("/plots/suites/99/history").status_code == 404


def test_nothing_of_a_report_is_markup(client):
    sent = report()
    sent["suite"], sent["source"] = HOSTILE, HOSTILE
    sent["machine"] |= {"processor": HOSTILE, "target": HOSTILE[:90], "system": HOSTILE}
    sent["machine"]["toolchain"], sent["machine"]["peers"] = HOSTILE, {HOSTILE: HOSTILE}
    for row in sent["problems"]:
        row["label"], row["reason"] = HOSTILE, HOSTILE
    assert client.post("/v1/suite-reports", json=sent).status_code == 201
    for path in ("/suites", "/suites/1"):
        answer = client.get(path)
        assert_no_markup(answer)
        assert "&lt;script&gt;" in answer.text


def problem(name, low, high):
    return {"problem": name, "ours": {"gflops": (low + high) / 2, "interval": [low, high]}}


def test_a_change_is_told_apart_by_the_intervals():
    absent = {"problem": "d", "ours": None}
    new = {"problems": [problem("a", 9, 11), problem("b", 9, 11), problem("c", 1, 2), absent]}
    old = {"problems": [problem("b", 4, 6), problem("a", 10, 14), problem("d", 1, 2)]}
    assert changes(new, old) == [Change(10 / 12, False), Change(2.0, True), None, None]
    assert changes(new, None) == [None] * 4
