import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.service.conftest import PROBLEM

FOLDER = Path(__file__).parents[3] / "examples" / "prometheus"
RULES = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
METRIC = re.compile(r"\b(tilewise_[a-z_]+)(\{[^}]*\})?")
LABEL = re.compile(r"([a-z_]+)\s*=~?\s*\"([^\"]*)\"")


@pytest.fixture
def scrape(client, tuned):
    client.get("/v1/schedules", params={"problem": PROBLEM})
    client.get("/v1/jobs/x")
    client.post("/v1/jobs", json={"problem": PROBLEM, "trials": 4})
    found: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_each_rule_asks_for_what_there_is(scrape, rule):
    asked = METRIC.findall(rule["expr"])
    assert asked or rule["alert"] == "TilewiseDown"
    for name, selector in asked:
        assert name in scrape, f"{name} is no metric of the service"
        for label, value in LABEL.findall(selector):
            values = {labels.get(label) for labels in scrape[name]}
            assert None not in values, f"{name} has no label {label}"
            if "." not in value:
                assert value in values, f"{name} has no {label}={value}"
    for label in re.findall(r"by \(([^)]*)\)", rule["expr"]):
        for name in label.split(","):
            assert all(name.strip() in labels for labels in scrape[asked[0][0]]), name


def test_each_rule_says_what_to_do():
    for rule in RULES:
        assert {"summary", "action"} <= set(rule["annotations"])
        assert rule["labels"]["severity"] in ("page", "ticket")
    assert len({rule["alert"] for rule in RULES}) == len(RULES) >= 6


def test_the_configuration_names_the_rules():
    found = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    assert found["rule_files"] == ["alerts.yml"]
    assert found["scrape_configs"][0]["static_configs"][0]["targets"]


@pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="promtool, of Prometheus, reads the rules, and this machine has none",
)
def test_promtool_takes_the_rules():
    subprocess.run(["promtool", "check", "rules", str(FOLDER / "alerts.yml")], check=True)
