import errno
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import httpx
import pytest

from tests.service.conftest import PROBLEM
from tests.service.processes import ServiceProcess, wait_until
from tilewise.kernels.system.children import child_environment
from tilewise.service.db import reading
from tilewise.service.errors import AddressError
from tilewise.service.jobs.queue import get
from tilewise.service.listening import listen


def test_a_port_that_is_taken_or_refused_says_why(monkeypatch):
    (first,) = listen("127.0.0.1", 0)
    with first:
        port = first.getsockname()[1]
        with pytest.raises(AddressError, match=f"port={port} of 127.0.0.1 is taken; give another"):
            listen("127.0.0.1", port)
        with socket.create_connection(first.getsockname()), first.accept()[0] as served:
            assert served.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), "or bodies wait"
    (again,) = listen("127.0.0.1", port)
    again.close()
    for number, message in (
        (errno.EACCES, "port=80 of 127.0.0.1 is for privileged users alone; give one from 1024 on"),
        (errno.ENOBUFS, "port=80 of 127.0.0.1 cannot be had: No buffer space available"),
    ):
        refuse = Mock(side_effect=OSError(number, os.strerror(number)))
        monkeypatch.setattr(socket.socket, "bind", refuse)
        with pytest.raises(AddressError, match=message):
            listen("127.0.0.1", 80)


def test_a_name_is_served_on_all_its_addresses_that_the_machine_has(monkeypatch):
    hosts = ("192.0.2.1", "127.0.0.1", "127.0.0.2", "127.0.0.1")
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0)) for host in hosts]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    sockets = listen("name", 0)
    names = [one.getsockname() for one in sockets]
    for one in sockets:
        one.close()
    assert [host for host, _ in names] == ["127.0.0.1", "127.0.0.2"]
    assert names[0][1] == names[1][1] > 0, "one port for all"


@pytest.mark.full
def test_a_service_tells_its_port_and_ends_on_an_interrupt(url):
    command = [sys.executable, "-m", "tilewise", "serve", "--port", "0", "--workers", "0"]
    service = subprocess.Popen(
        [*command, "--db", url], stderr=subprocess.PIPE, text=True, env=child_environment()
    )
    try:
        assert service.stderr is not None
        line = next(line for line in service.stderr if "listening on http://127.0.0.1:" in line)
        address = line.partition("listening on ")[2].split()[0]
        assert httpx.get(f"{address}/healthz", timeout=60).status_code == 200
        service.send_signal(signal.SIGINT)
        assert service.wait(60) == 0
    finally:
        service.kill()
        service.communicate()


@pytest.mark.parametrize(
    ("soft", "hard", "files", "streams"), [(1024, 4096, 4096, 1000), (256, 1024, 1024, 256)]
)
def test_the_limit_on_open_files_is_raised_and_bounds_the_streams(soft, hard, files, streams):
    program = (
        "import resource; from tilewise.service import listening;"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}));"
        "print(listening.raise_file_limit(), listening.most_streams())"
    )
    command = [sys.executable, "-c", program]
    assert subprocess.check_output(command, text=True, env=child_environment()).split() == [
        str(files), str(streams)
    ]  # fmt: skip


@pytest.mark.full
def test_requests_that_wait_are_answered_when_the_service_ends(url, sessions, capfd):
    service = ServiceProcess(url, "tests.service.fakes:hanging_tune")
    address, body = f"{service.client.base_url}/v1/jobs", {"problem": PROBLEM, "wait": True}
    with ThreadPoolExecutor(8) as threads:
        waiting = [threads.submit(httpx.post, address, json=body, timeout=60) for _ in range(8)]
        wait_until(lambda: bool(service.client.get("/v1/jobs/1/trials").json().get("trials")))
        assert service.stop() == -signal.SIGTERM
        answers = [one.result() for one in waiting]
    assert [answer.status_code for answer in answers] == [202] * 8
    assert {answer.json()["id"] for answer in answers} == {1}
    with reading(sessions) as session:
        assert get(session, 1).state == "queued", "it was given back"
    assert "Traceback" not in capfd.readouterr().err
