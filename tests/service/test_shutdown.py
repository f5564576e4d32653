import signal
import threading

import httpx
import pytest

from tests.service.conftest import PROBLEM
from tests.service.processes import ServiceProcess, wait_until
from tilewise.service.db import reading
from tilewise.service.jobs.queue import get


@pytest.mark.full
@pytest.mark.parametrize("clients", [1, 8])
def test_a_request_that_waits_is_answered_when_the_service_ends(url, sessions, clients, capfd):
    service = ServiceProcess(url, "tests.service.fakes:hanging_tune")
    answers: list[httpx.Response] = []

    def ask():
        body = {"problem": PROBLEM, "wait": True}
        answers.append(httpx.post(f"{service.client.base_url}/v1/jobs", json=body, timeout=60))

    waiting = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in waiting:
        thread.start()
    wait_until(lambda: bool(service.client.get("/v1/jobs/1/trials").json().get("trials")))
    assert service.stop() == -signal.SIGTERM
    for thread in waiting:
        thread.join(60)
    assert [answer.status_code for answer in answers] == [202] * clients
    assert {answer.json()["id"] for answer in answers} == {1}
    with reading(sessions) as session:
        assert get(session, 1).state == "queued", "it was given back"
    assert "Traceback" not in capfd.readouterr().err
