import subprocess
import sys

import pytest

from tilewise.service.cluster import task
from tilewise.service.errors import UnreachableError
from tilewise.service.runs.process import UNREACHABLE

SLEEP = "import time; time.sleep(600)"


class Calls:
    """A service that says what a test tells it to."""

    def __init__(self, *words, is_away=False):
        self.words, self.is_away, self.crashes = list(words), is_away, []

    def goes_on(self):
        return self.words.pop(0) if len(self.words) > 1 else self.words[0]

    def post(self, path, said, kind):
        if self.is_away:
            raise UnreachableError("nobody answers")
        self.crashes.append((path, said.why))
        return kind(ended=True)


@pytest.fixture(autouse=True)
def beats(monkeypatch):
    monkeypatch.setattr(task, "BEAT_S", 0.05)


@pytest.fixture
def child():
    started = []

    def make(program):
        started.append(subprocess.Popen([sys.executable, "-c", program], start_new_session=True))
        return started[-1]

    yield make
    for one in started:
        one.kill()
        one.wait()


def watched(child, calls, is_member=lambda: True):
    task.watch(child, calls, is_member)
    return calls.crashes


def test_a_child_that_ends_by_itself_has_nothing_told(child):
    assert watched(child(""), Calls(True)) == []
    assert watched(child(f"raise SystemExit({UNREACHABLE})"), Calls(True)) == []


def test_the_death_of_a_child_is_told_with_its_reason(child):
    aborts = child("import os; os.abort()")
    assert watched(aborts, Calls(True)) == [("/crashed", "signal SIGABRT")]
    fails = child("raise SystemExit(3)")
    assert watched(fails, Calls(True)) == [("/crashed", "exit status 3; its log says more")]


def test_a_worker_that_leaves_its_cluster_ends_its_run(child):
    running = child(SLEEP)
    answers = iter((True, False))
    assert watched(running, Calls(True), lambda: next(answers)) == []
    assert running.returncode is not None
