"""A cluster in memory, whose workers do what a test says."""

from datetime import timedelta

import pytest

from tests.service.conftest import PROBLEM, TOOLCHAIN
from tilewise.service.cluster.driver import Driver
from tilewise.service.cluster.facts import Facts
from tilewise.service.db import models, reading, writing
from tilewise.service.errors import UnreachableError
from tilewise.service.jobs.registry import MachineSpeed
from tilewise.service.runs import offers

FIRST, SECOND = "tcp://10.0.0.2:4000", "tcp://10.0.0.3:4000"
FOREIGN = "cpu:neoverse-v2,threads=1"
HOUR = timedelta(hours=1)


def problems(count):
    return [f"{PROBLEM},batch={number}" for number in range(2, 2 + count)]


class FakeTask:
    """A task that runs until the test ends it."""

    def __init__(self, offer):
        self.offer, self.end, self.is_cancelled = offer, None, False

    def outcome(self):
        return self.end

    def cancel(self):
        self.is_cancelled = True


class FakeCluster:
    """Workers by address, and every task that was submitted."""

    def __init__(self, machine):
        self.machine = machine
        self.present, self.tasks, self.is_away, self.is_closed = {}, [], False, False

    def join(self, *addresses, targets=None, toolchain=TOOLCHAIN):
        measured = MachineSpeed({"f32": 100.0}, 20.0)
        targets = self.machine.targets if targets is None else targets
        for address in addresses:
            owner = f"{address[6:].replace(':', '-')}:7:7"
            self.present[address] = Facts(owner, self.machine, targets, toolchain, measured)

    def workers(self):
        if self.is_away:
            raise UnreachableError("the scheduler does not answer")
        return dict(self.present)

    def submit(self, offer, toolchain):
        self.tasks.append(FakeTask(offer))
        return self.tasks[-1]

    def close(self):
        self.is_closed = True


@pytest.fixture
def cluster(machine):
    return FakeCluster(machine)


@pytest.fixture
def driver(sessions, cluster):
    def make(name="driver-host:1:1", unserved=HOUR):
        made = Driver(sessions, cluster, unserved)
        made._me = name
        made._looks.period_s = made._beats.period_s = 0.0
        return made

    return make


@pytest.fixture
def begin(sessions):
    """Begins the run of a task, as its worker does."""

    def make(task, owner="worker-host:7:7"):
        with writing(sessions) as session:
            row = offers.find(session, task.offer.job_id, task.offer.token)
            return offers.begin(session, row, owner)

    return make


@pytest.fixture
def running(driver, cluster, submit, begin):
    """A driver, the job that it has given to the first worker, and the lease of the job."""
    made, job_id = driver(), submit()
    cluster.join(FIRST)
    made.tick()
    return made, job_id, begin(cluster.tasks[0])


@pytest.fixture
def stored_offers(sessions):
    """Reads the offers of leaders, of helpers or of both."""

    def read(*roles):
        with reading(sessions) as session:
            found = session.query(models.Offer).all()
            return [row for row in found if not roles or row.role in roles]

    return read
