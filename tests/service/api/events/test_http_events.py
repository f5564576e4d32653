import json
import threading

import httpx
import pytest

from tests.service.api.events.test_feeds import parse
from tests.service.conftest import PROBLEM
from tests.service.processes import ServiceProcess, wait_until


def events_of(text):
    found = [parse(block.encode()) for block in text.split("\n\n") if block]
    return [
        (one["event"], json.loads(one["data"]), one.get("id")) for one in found if "event" in one
    ]


def test_a_job_that_has_ended_is_told_whole(client, tuned):
    answer = client.get(f"/v1/jobs/{tuned}/events")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.text.startswith("retry: 1000\n\n")
    told = events_of(answer.text)
    trials = client.get(f"/v1/jobs/{tuned}/trials").json()["trials"]
    assert [data for name, data, _ in told if name == "trial"] == trials
    assert [id_ for name, _, id_ in told if name == "trial"] == ["0", "1", "2", "3"]
    job = client.get(f"/v1/jobs/{tuned}").json()
    assert told[-1] == ("end", job, None)
    assert job["links"]["events"] == f"/v1/jobs/{tuned}/events"
    assert ("phase", job["phase"], None) in told
    assert job["phase"]["name"] in ("finals", "proof")  # of a winner that was not proven before


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/jobs/7777/events", {}, 404),
        ("/v1/jobs/x/events", {}, 422),
        ("/v1/jobs/{job}/events", {"Last-Event-ID": "last"}, 422),
        ("/v1/jobs/{job}/events", {"Last-Event-ID": "-2"}, 422),
        ("/v1/jobs/{job}/events?after=1e9", {}, 422),
    ],
)
def test_a_stream_that_cannot_be(client, tuned, path, headers, status):
    answer = client.get(path.format(job=tuned), headers=headers)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_head_request_gets_the_headers_alone(client, tuned):
    answer = client.head(f"/v1/jobs/{tuned}/events")
    assert answer.status_code == 200 and answer.text == ""


@pytest.mark.full
def test_streams_of_two_services_and_of_their_ends(url, tmp_path):
    """One service runs the job; clients of both see the same; a service that ends lets them go."""
    runs = ServiceProcess(url, "tests.service.fakes:slow_tune")
    shows = ServiceProcess(url, "tests.service.fakes:slow_tune")
    job = runs.client.post("/v1/jobs", json={"problem": PROBLEM, "trials": 30}).json()["id"]
    texts: dict[str, str] = {}
    begun: set[str] = set()

    def follow(name, service, after):
        address = f"{service.client.base_url}/v1/jobs/{job}/events?after={after}"
        texts[name] = ""
        with httpx.stream("GET", address, timeout=60) as response:
            for text in response.iter_text():
                begun.add(name)
                texts[name] += text

    clients = [threading.Thread(target=follow, args=(str(s.port), s, -1)) for s in (runs, shows)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join(60)
    first, second = (events_of(text) for text in texts.values())
    for told in (first, second):
        assert [data["number"] for name, data, _ in told if name == "trial"] == list(range(30))
        assert told[-1][0] == "end" and told[-1][1]["state"] == "done"
    waiting = shows.client.post("/v1/jobs", json={"problem": PROBLEM, "trials": 3000}).json()["id"]
    job = waiting
    last = threading.Thread(target=follow, args=("last", shows, 29))
    last.start()
    wait_until(lambda: "last" in begun)
    shows.stop()
    last.join(60)
    assert not last.is_alive() and texts["last"].startswith("retry: ")
    assert "event: end" not in texts["last"]
    runs.stop()
