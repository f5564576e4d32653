"""Offers of jobs to workers, and what these call the service with."""

import copy
from functools import reduce
from operator import getitem

import httpx
import pytest

from tests.service.conftest import TOOLCHAIN
from tilewise.service.db import writing
from tilewise.service.runs import offers
from tilewise.service.runs.http import HttpRunStore, RunCalls

DRIVER, WORKER, OWNER = "driver-host:1:1", "tcp://10.0.0.2:4000", "worker-host:7:7"


def changed(body, path, value):
    """A copy of a body with another value at a path such as `nodes.0.op`."""
    made = copy.deepcopy(body)
    *way, last = (int(name) if name.isdigit() else name for name in path.split("."))
    reduce(getitem, way, made)[last] = value
    return made


class Flaky(httpx.BaseTransport):
    """Of three answers loses one and replaces one by "busy", a proxy's refusal or its page."""

    def __init__(self, inner):
        self.inner, self.calls = inner, 0

    def handle_request(self, request):
        self.calls += 1
        answer = self.inner.handle_request(request)
        if self.calls % 3 == 1:
            raise httpx.ReadTimeout("the answer is lost")
        status = (403, 503, 302, 407, 200)[self.calls // 3 % 5]
        return httpx.Response(status, text="busy") if self.calls % 3 == 2 else answer


@pytest.fixture
def offer(sessions, machine):
    """Offers the next job to a worker."""

    def make(worker=WORKER, made_by=offers):
        with writing(sessions) as session:
            made = made_by.make(session, worker, machine.targets, TOOLCHAIN, DRIVER)
        assert made is not None
        return made

    return make


@pytest.fixture
def calls(client):
    """Makes the calls of the worker of an offer."""

    def make(offer, **options):
        given = {"transport": client._transport, "patience_s": 1.0, **options}
        return RunCalls("http://testserver", offer.job_id, offer.token, **given)

    return make


@pytest.fixture
def begin(calls):
    """Begins a search that was offered."""

    def make(offer, owner=OWNER, **options):
        return HttpRunStore(calls(offer, **options), owner, TOOLCHAIN, offer.job_id)

    return make


@pytest.fixture
def post(client):
    """Posts a body to a job's path with the token of an offer."""

    def send(offer, path, body=None, job_id=None):
        headers = {"Authorization": f"Bearer {offer.token}"}
        path = f"/v1/runs/{job_id or offer.job_id}/{path}"
        return client.post(path, json=body, headers=headers)

    return send
