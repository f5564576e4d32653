import asyncio
import gzip
import http.client
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from fastapi import FastAPI, Request

from tests.service.api.test_middleware import serving
from tests.service.conftest import TOOLCHAIN, settings_for
from tests.service.processes import wait_until
from tilewise.service.api.middleware import BodyLimit
from tilewise.service.app import create_app

HEAD = "{} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture
def port(url, machine, caplog) -> Iterator[int]:
    app = create_app(settings_for(url, require_tokens=True), 0, machine=machine,
                     toolchain=TOOLCHAIN)  # fmt: skip
    with serving(app) as at:
        yield at


def exchange(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 30) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(1 << 16), b""))


@pytest.mark.full
@pytest.mark.parametrize("line", ["POST /v1/jobs", "POST /v1/nothing", "GET /", "POST /sign-in"])
@pytest.mark.parametrize(
    "chunks", [b"ZZZ\r\nabc\r\n", b"4\r\nabcd\r\n-1\r\n", b"4\r\nabcdefgh\r\n"]
)
def test_a_malformed_chunk_is_no_fault_of_the_service(port, caplog, line, chunks):
    head = HEAD.format(line) + "Transfer-Encoding: chunked\r\n\r\n"
    assert exchange(port, head.encode() + chunks).startswith(b"HTTP/1.1 4")
    faults = [one for one in caplog.records if one.levelno >= logging.ERROR or one.exc_info]
    assert not faults, faults


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/models", "/v1/plans", "/v1/problems/parse"])
@pytest.mark.parametrize(
    "sent",
    ["Content-Length: 100\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"],
    ids=["declared", "chunked"],
)
def test_a_client_that_leaves_within_its_body_is_no_fault(url, machine, caplog, path, sent):
    caplog.set_level(logging.INFO)
    app = create_app(settings_for(url), 0, machine=machine, toolchain=TOOLCHAIN)
    with serving(app) as at:
        with socket.create_connection(("127.0.0.1", at), 30) as client:
            client.sendall(HEAD.format(f"POST {path}").encode() + sent.encode())
        wait_until(lambda: any(getattr(one, "path", "") == path for one in caplog.records))
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR or one.exc_info]


def test_a_request_of_two_lengths_is_refused_and_its_connection_closed(port):
    head = HEAD.format("POST /v1/jobs") + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
    smuggled = HEAD.format("GET /healthz") + "\r\n"
    answer = exchange(port, head.encode() + b"0\r\n\r\n" + smuggled.encode())
    assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1") == 1
    assert b"Content-Length or Transfer-Encoding" in answer


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/problems/parse"])
def test_a_compressed_body_is_refused_by_its_header(port, path):
    body = gzip.compress(b"{}")
    with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        assert answer.status == 415
        assert b"Content-Encoding: 'gzip'; send it plain" in answer.read()
        connection.request("POST", path, b"{}", headers | {"Content-Encoding": "identity"})
        assert connection.getresponse().status == 401, "the body is taken, and no token is shown"


@pytest.mark.parametrize("path", ["//x/", "//evil.test/", "/v1/jobs/", "/sign-in/", "/healthz/"])
def test_no_answer_leads_to_a_host_that_the_client_named(url, machine, path):
    settings = settings_for(url, allowed_hosts="*")
    app = create_app(settings, 0, machine=machine, toolchain=TOOLCHAIN)
    with serving(app) as at, closing(http.client.HTTPConnection("127.0.0.1", at)) as connection:
        connection.request("GET", path, headers={"Host": "evil.test"})
        answer = connection.getresponse()
        assert "evil.test" not in answer.getheader("Location", "")
        assert answer.status == 404


def post(port: int, size: int, *, is_chunked: bool) -> tuple[int, str | None]:
    body = (b"x" * 512 for _ in range(size // 512)) if is_chunked else b"x" * size
    headers = {"Transfer-Encoding": "chunked"} if is_chunked else {}
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("POST", "/v1/jobs", body, headers, encode_chunked=is_chunked)
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.getheader("Retry-After")


@pytest.mark.parametrize("is_chunked", [False, True], ids=["declared", "in chunks"])
def test_bodies_of_all_requests_share_a_budget(is_chunked):
    """Two of 4 KiB fit into 9 KiB: others are sent away while those are held, and come later."""
    app, release = FastAPI(), threading.Event()
    app.add_middleware(BodyLimit, most_bytes=4096, most_bytes_in_flight=9 * 1024)
    arrived = threading.Semaphore(0)

    @app.post("/v1/jobs")
    async def keep(request: Request) -> int:
        size = len(await request.body())
        arrived.release()
        while not release.is_set():
            await asyncio.sleep(0.01)
        return size

    with serving(app) as at:
        answers: list[tuple[int, str | None]] = []
        first = [
            threading.Thread(target=lambda: answers.append(post(at, 4096, is_chunked=is_chunked)))
            for _ in range(2)
        ]
        for thread in first:
            thread.start()
            assert arrived.acquire(timeout=30)
        status, retry_after = post(at, 4096, is_chunked=is_chunked)
        assert status == 503 and int(retry_after or 0) > 0
        release.set()
        for thread in first:
            thread.join()
        assert [status for status, _ in answers] == [200, 200]
        assert post(at, 4096, is_chunked=is_chunked)[0] == 200, "what ended gives back its bytes"
