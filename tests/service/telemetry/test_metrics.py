import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from tests.service import fakes
from tests.service.conftest import KEY, OTHER, PROBLEM
from tilewise.service.db import models, writing
from tilewise.service.jobs import registry
from tilewise.service.jobs.trial_store import SqlTrialStore

SCRIPT = f"/v1/schedules/{KEY}/script"
FOLDER = Path(__file__).parents[3] / "examples" / "prometheus"
RULES = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
METRIC = re.compile(r"\b(tilewise_[a-z_]+)(\{[^}]*\})?")
LABEL = re.compile(r"([a-z_]+)\s*=~?\s*\"([^\"]*)\"")


def scraped(client):
    answer = client.get("/metrics")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_requests_are_counted_by_route_and_status_and_not_by_what_clients_choose(client, tuned):
    for _ in range(3):
        client.get(SCRIPT)
    client.get("/v1/jobs/1")
    client.get("/v1/jobs/77")
    client.post("/v1/schedules/lookup", json={"problems": [PROBLEM]})
    found = scraped(client)
    name = "tilewise_http_requests_total"
    assert found[name, "/v1/schedules/{key}/script", "200", "GET"] == 3, "kept answers too"
    assert found[name, "/v1/jobs/{job_id}", "200", "GET"] == 1
    assert found[name, "/v1/jobs/{job_id}", "404", "GET"] == 1
    assert found[name, "/v1/schedules/lookup", "200", "POST"] == 1
    seconds = "tilewise_http_request_duration_seconds"
    assert found[f"{seconds}_count", "/v1/schedules/{key}/script", "GET"] == 3
    assert found[f"{seconds}_sum", "/v1/schedules/{key}/script", "GET"] > 0
    assert found["tilewise_http_requests_in_flight",] == 1, "this one"
    before = sum(key[0] == name for key in found)
    for number in range(30):
        client.get(f"/nothing/{number}")
        client.get(f"/v1/jobs/{number + 100}")
        client.request(f"METHOD{number}", "/v1/jobs")
        client.get("/v1/jobs", headers={"Host": f"h{number}.example"})
    assert sum(key[0] == name for key in scraped(client)) <= before + 6


def test_answers_are_counted_by_how_near_they_are(client, client_factory, tuned):
    client.get("/v1/schedules", params={"problem": PROBLEM})
    client.get("/v1/schedules", params={"problem": PROBLEM + ",bias"})
    client.get(SCRIPT)
    client.get(SCRIPT)
    client.post("/v1/schedules/lookup", json={"problems": [PROBLEM, PROBLEM + ",bias"]})
    found = scraped(client)
    assert found["tilewise_answers_total", "exact"] == 4
    assert found["tilewise_answers_total", "none"] == 2
    newer = client_factory(toolchain="a newer one")
    newer.get(SCRIPT)
    assert scraped(newer)["tilewise_answers_total", "toolchain"] == 1


def test_jobs_trials_and_workers_are_those_of_the_database(
    client, client_factory, sessions, submit, run, machine
):
    second = client_factory()
    run(submit())
    waiting = submit(OTHER)
    client.post("/v1/jobs", json={"problem": "matmul:m=1..9,n=8,k=8,dtype=f32"})
    with writing(sessions) as session:
        registry.show(session, registry.WorkerEntry("elsewhere:1:1", machine, (), "t", 1))
    SqlTrialStore(sessions, waiting).add(fakes.failed_trial(0))
    expected = {
        ("tilewise_jobs", "done"): 1, ("tilewise_jobs", "queued"): 2,
        ("tilewise_jobs", "running"): 0, ("tilewise_workers",): 1,
        ("tilewise_trials_total", "timed"): 4, ("tilewise_trials_total", "failed"): 1,
        ("tilewise_trial_seconds_total", "compile"): pytest.approx(4 * 0.25),
        ("tilewise_trial_seconds_total", "timing"): pytest.approx(4 * (0.1 + 1 / 3 + 1.5e-05)),
    }  # fmt: skip
    for one in (client, second, client):  # each row is counted once
        found = scraped(one)
        assert {name: found[name] for name in expected} == expected
        assert found["tilewise_queue_age_seconds",] > 0


def test_refused_rows_are_counted(client, sessions, tuned):
    before = scraped(client)["tilewise_refused_rows_total", "schedules"]
    assert ("tilewise_refused_rows_total", "tuned_ranges") in scraped(client)
    with writing(sessions) as session:
        session.query(models.Schedule).update({"gflops": 1e6})
    assert client.get("/v1/schedules", params={"problem": PROBLEM}).status_code == 500
    assert scraped(client)["tilewise_refused_rows_total", "schedules"] == before + 1


def test_the_docs_name_every_metric_and_open_metrics_can_be_asked_for(client, tuned):
    kind = "application/openmetrics-text; version=1.0.0"
    answer = client.get("/metrics", headers={"Accept": kind})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    names = {family.name for family in open_metrics(answer.text)}
    assert {"tilewise_http_requests", "tilewise_jobs", "tilewise_build"} <= names
    families = text_string_to_metric_families(client.get("/metrics").text)
    found = {
        sample.name for family in families for sample in family.samples
        if family.name.startswith("tilewise_") and not family.name.startswith("tilewise_process_")
    }  # fmt: skip
    text = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
    counted = {name for name in found if not name.endswith("_created")}
    names = {re.sub("(_bucket|_count|_sum)$", "", name) for name in counted}
    assert names == set(re.findall(r"^\| `(tilewise_[a-z_]+)`", text, re.MULTILINE))


def test_each_rule_asks_for_what_there_is(client, tuned):
    client.get("/v1/schedules", params={"problem": PROBLEM})
    client.get("/v1/jobs/x")
    client.post("/v1/jobs", json={"problem": PROBLEM, "trials": 4})
    scrape = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for sample in family.samples:
            scrape.setdefault(sample.name, []).append(sample.labels)
    for rule in RULES:
        asked = METRIC.findall(rule["expr"])
        assert asked or rule["alert"] == "TilewiseDown"
        for name, selector in asked:
            assert name in scrape, f"{name} is no metric of the service"
            for label, value in LABEL.findall(selector):
                values = {labels.get(label) for labels in scrape[name]}
                assert None not in values, f"{name} has no label {label}"
                assert "." in value or value in values, f"{name} has no {label}={value}"
        for label in re.findall(r"by \(([^)]*)\)", rule["expr"]):
            for name in label.split(","):
                assert all(name.strip() in labels for labels in scrape[asked[0][0]]), name


def test_each_rule_says_what_to_do_and_is_configured():
    for rule in RULES:
        assert {"summary", "action"} <= set(rule["annotations"])
        assert rule["labels"]["severity"] in ("page", "ticket")
    assert len({rule["alert"] for rule in RULES}) == len(RULES) >= 6
    found = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    assert found["rule_files"] == ["alerts.yml"]
    assert found["scrape_configs"][0]["static_configs"][0]["targets"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="this machine has no promtool")
def test_promtool_takes_the_rules():
    subprocess.run(["promtool", "check", "rules", str(FOLDER / "alerts.yml")], check=True)
