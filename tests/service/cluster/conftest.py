"""A cluster in memory, whose workers do what a test says."""

import threading

import pytest

from service.cluster.facts import Facts
from service.errors import UnreachableError
from service.jobs.registry import Measured
from tests.service.conftest import TOOLCHAIN


class FakeTask:
    """A task that runs until the test ends it."""

    def __init__(self, offer):
        self.offer, self.end, self.is_cancelled = offer, None, False

    def ending(self):
        return self.end

    def cancel(self):
        self.is_cancelled = True


class FakeCluster:
    """Workers by address, and every task that was submitted."""

    def __init__(self, machine):
        self.machine = machine
        self.present, self.tasks, self.is_away, self.is_closed = {}, [], False, False

    def join(self, address, targets=None, toolchain=TOOLCHAIN):
        measured = Measured({"f32": 100.0}, 20.0)
        owner = f"{address[6:].replace(':', '-')}:7:7"
        targets = self.machine.targets if targets is None else targets
        self.present[address] = Facts(owner, self.machine, targets, toolchain, measured)
        return address

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
def stopped():
    made = threading.Event()
    made.set()
    return made
