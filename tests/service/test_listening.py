import errno
import os
import signal
import socket
import subprocess
import sys

import httpx
import pytest

from tests.service.processes import wait_until
from tilewise.kernels.system.children import child_environment
from tilewise.service.errors import AddressError
from tilewise.service.listening import listen


def resolve_to(monkeypatch, *hosts):
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0)) for host in hosts]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)


def test_a_port_belongs_to_who_listens():
    (first,) = listen("127.0.0.1", 0)
    with first:
        port = first.getsockname()[1]
        with pytest.raises(AddressError, match=f"port={port} of 127.0.0.1 is taken; give another"):
            listen("127.0.0.1", port)
    (again,) = listen("127.0.0.1", port)
    again.close()


def test_a_name_is_served_on_all_its_addresses(monkeypatch):
    resolve_to(monkeypatch, "127.0.0.1", "127.0.0.2", "127.0.0.1")
    sockets = listen("name", 0)
    names = [one.getsockname() for one in sockets]
    for one in sockets:
        one.close()
    assert [host for host, _ in names] == ["127.0.0.1", "127.0.0.2"]
    assert names[0][1] == names[1][1] > 0, "one port for all"


def test_an_address_that_the_machine_lacks_is_left_out_of_a_name(monkeypatch):
    resolve_to(monkeypatch, "192.0.2.1", "127.0.0.1")
    (one,) = listen("name", 0)
    with one:
        assert one.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.EACCES, "port=80 of 127.0.0.1 is for privileged users alone; give one from 1024 on"),
        (errno.ENOBUFS, "port=80 of 127.0.0.1 cannot be had: No buffer space available"),
    ],
)
def test_a_port_that_the_system_refuses_says_why(monkeypatch, number, message):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(AddressError, match=message):
        listen("127.0.0.1", 80)


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_service_tells_its_port_and_ends_on_a_signal(url, number):
    command = [sys.executable, "-m", "tilewise", "serve", "--port", "0", "--workers", "0"]
    service = subprocess.Popen(
        [*command, "--db", url], stderr=subprocess.PIPE, text=True, env=child_environment()
    )
    try:
        assert service.stderr is not None
        line = next(line for line in service.stderr if "listening on http://127.0.0.1:" in line)
        address = line.partition("listening on ")[2].split()[0]

        def answers():
            try:
                return httpx.get(f"{address}/healthz", timeout=30).status_code == 200
            except httpx.TransportError:
                assert service.poll() is None, "the service ended"
                return False

        wait_until(answers)
        service.send_signal(number)
        assert service.wait(60) in (0, -signal.SIGTERM)
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
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env=child_environment(),
    )  # fmt: skip
    assert found.stdout.split() == [str(files), str(streams)]
