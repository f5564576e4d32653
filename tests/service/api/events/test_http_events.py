import contextlib
import json
import signal
import threading

import httpx
import pytest

from tests.service.api.answers import assert_problem
from tests.service.api.events.test_feeds import parse
from tests.service.conftest import PROBLEM
from tests.service.processes import ServiceProcess, wait_until


def events_of(text):
    found = [parse(block.encode()) for block in text.split("\n\n") if block]
    return [
        (one["event"], json.loads(one["data"]), one.get("id")) for one in found if "event" in one
    ]


def test_a_job_that_has_ended_is_told_whole_and_bad_requests_are_refused(client, tuned):
    path = f"/v1/jobs/{tuned}/events"
    answer = client.get(path)
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
    head = client.head(path)
    assert head.status_code == 200 and head.text == ""
    assert job["links"]["events"] == path
    assert ("phase", job["phase"], None) in told
    assert job["phase"]["name"] in ("finals", "proof")  # of a winner that was not proven before
    assert_problem(client.get("/v1/jobs/7777/events"), 404)
    assert_problem(client.get("/v1/jobs/x/events"), 422)
    assert_problem(client.get(f"{path}?after=1e9"), 422)
    for number in ("last", "-2"):
        assert_problem(client.get(path, headers={"Last-Event-ID": number}), 422)


def follow(service, path):
    """Reads a stream in a thread; gives the thread and the texts that came."""
    texts = []

    def read():
        with (
            contextlib.suppress(httpx.TransportError),
            httpx.stream("GET", f"{service.client.base_url}{path}", timeout=60) as answer,
        ):
            texts.extend(answer.iter_text())

    thread = threading.Thread(target=read)
    thread.start()
    return thread, texts


@pytest.mark.full
def test_streams_of_two_services_and_of_their_ends(url):
    """One service runs the job; clients of both see the same; a service that ends lets them go."""
    runs, shows = (ServiceProcess(url, "tests.service.fakes:slow_tune") for _ in range(2))

    def post(trials):
        asked = {"problem": PROBLEM, "trials": trials}
        return f"/v1/jobs/{runs.client.post('/v1/jobs', json=asked).json()['id']}/events?after="

    path = post(30)
    for thread, texts in [follow(service, f"{path}-1") for service in (runs, shows)]:
        thread.join(60)
        told = events_of("".join(texts))
        assert [data["number"] for name, data, _ in told if name == "trial"] == list(range(30))
        assert told[-1][0] == "end" and told[-1][1]["state"] == "done"
    open_streams = [follow(shows, path) for path in (f"{post(3000)}29", "/live", "/live")]
    for (_, texts), wanted in zip(open_streams, ("retry:", "data:", "data:"), strict=True):
        wait_until(lambda texts=texts, wanted=wanted: wanted in "".join(texts))
    assert shows.stop() == -signal.SIGTERM  # as uvicorn ends, and within its time
    for thread, texts in open_streams:
        thread.join(30)
        assert not thread.is_alive() and "event: end" not in "".join(texts)
    job, *pages = ("".join(texts) for _, texts in open_streams)
    assert job.startswith("retry: ")
    for page in pages:
        told = [json.loads(line[5:]) for line in page.splitlines() if line.startswith("data:")]
        assert told and all({"jobs", "machines"} == one.keys() for one in told)
    runs.stop()
