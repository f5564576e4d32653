import errno
import os
import signal
import socket
import subprocess
import sys

import httpx
import pytest
from fastapi import FastAPI

from tests.service.processes import wait_until
from tilewise.kernels.system.children import child_environment
from tilewise.service import listening, server
from tilewise.service.errors import AddressError, HostError, ServiceError
from tilewise.service.listening import listen
from tilewise.service.settings import Settings

ELSEWHERE = ("192.0.2.1", "no-such-host.invalid", "1.2.3.400")


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


@pytest.mark.parametrize("host", [*ELSEWHERE, "", "a..b", "x" * 300, "\udcff", "a\0b"])
def test_a_host_elsewhere_is_refused(host):
    with pytest.raises(HostError, match="is no address of this machine") as caught:
        listen(host, 0)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 300


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


def test_nothing_is_started_without_the_port(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "examine", lambda: pytest.fail("the machine is examined"))
    monkeypatch.setattr(
        server, "create_app", lambda *_, **__: pytest.fail("an application is made")
    )
    file = tmp_path / "new.db"
    with listen("127.0.0.1", 0)[0] as taken, pytest.raises(AddressError):
        server.serve(port=taken.getsockname()[1], settings=Settings(db=f"sqlite:///{file}"))
    assert not file.exists(), "the database is made"


def test_an_application_that_cannot_start_is_an_error_and_frees_the_port(url, machine, monkeypatch):
    async def fail(_app):
        raise RuntimeError("no parts")
        yield

    monkeypatch.setattr(server, "examine", lambda: machine)
    monkeypatch.setattr(server, "create_app", lambda *_, **__: FastAPI(lifespan=fail))
    (probe,) = listen("127.0.0.1", 0)
    port = probe.getsockname()[1]
    probe.close()
    with pytest.raises(ServiceError, match="could not be started"):
        server.serve(port=port, settings=Settings(db=url))
    listen("127.0.0.1", port)[0].close()


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


def test_a_name_of_which_an_address_is_taken_is_served_on_none(monkeypatch):
    """Nobody may be left waiting on the first of them."""
    opened = []

    def listening_once(family, _address):
        if opened:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        opened.append(socket.socket(family))
        opened[0].bind(("127.0.0.1", 0))
        return opened[0]

    both = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", (name, 80))
        for name in ("127.0.0.1", "127.0.0.2")
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    monkeypatch.setattr(listening, "_listening", listening_once)
    with pytest.raises(AddressError, match="is taken"):
        listen("both", 80)
    assert [one.fileno() for one in opened] == [-1]


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
