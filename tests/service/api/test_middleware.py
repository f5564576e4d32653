import asyncio
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from fastapi.testclient import TestClient

from tests.service.api.test_answer_cache import headers_of
from tests.service.api.test_http_errors import assert_nothing_stored, assert_problem
from tests.service.api.test_http_schedules import KEY
from tests.service.conftest import PROBLEM, TOOLCHAIN, settings_for
from tilewise.service.api.middleware import LINGER_S
from tilewise.service.app import create_app
from tilewise.service.server import Server

MOST = 2048
SCRIPT = f"/v1/schedules/{KEY}/script"
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def app(url, machine):
    settings = settings_for(url, body_bytes=MOST)
    return create_app(settings, 0, machine=machine, toolchain=TOOLCHAIN)


@pytest.fixture
def small(app) -> Iterator[TestClient]:
    with TestClient(app) as client:
        yield client


def body(size: int) -> bytes:
    text = b'{"problem": "%s"}' % PROBLEM.encode()
    return text + b" " * (size - len(text))


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/schedules/lookup"])
@pytest.mark.parametrize("pieces", [1, 4], ids=["declared", "in chunks"])
def test_a_body_that_is_too_large_is_refused(small, sessions, path, pieces):
    size = MOST + 1
    sent = [body(size)[at : at + size // pieces + 1] for at in range(0, size, size // pieces + 1)]
    assert len(sent) == pieces
    content = sent[0] if pieces == 1 else iter(sent)
    answer = small.post(path, content=content, headers=JSON)
    details = assert_problem(answer, 413)
    assert details["instance"] == path and "exceeds the limit of 2 KiB" in details["detail"]
    assert_nothing_stored(sessions)


def test_head_answers_as_get_without_the_body(small, tuned):
    for path in (SCRIPT, "/v1/jobs", f"/v1/schedules?problem={PROBLEM}", "/openapi.json"):
        got, head = small.get(path), small.head(path)
        assert (head.status_code, head.content) == (200, b""), path
        assert headers_of(head) == headers_of(got), path
    etag = small.head(SCRIPT).headers["ETag"]
    assert small.head(SCRIPT, headers={"If-None-Match": etag}).status_code == 304
    assert small.head("/v1/jobs/99").status_code == 404
    assert small.head("/v1/schedules/lookup").status_code == 405


def test_head_of_a_stream_comes_to_an_end(app):
    ended = threading.Event()

    async def forever():
        try:
            while True:
                yield "data: again\n\n"
                await asyncio.sleep(0)
        finally:
            ended.set()

    app.get("/stream")(lambda: StreamingResponse(forever(), media_type="text/event-stream"))
    with TestClient(app) as client:
        head = client.head("/stream")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["Content-Type"].startswith("text/event-stream")
    assert ended.wait(10)


@contextmanager
def serving(app: FastAPI) -> Iterator[int]:
    """A real server, for what a test client does not show: bytes on a connection."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        free = one.getsockname()[1]
    server = Server(app, port=free, log_level="error")
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server ended"
        time.sleep(0.01)
    try:
        yield free
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def port(app) -> Iterator[int]:
    with serving(app) as port:
        yield port


def require_refusal(connection: http.client.HTTPConnection) -> None:
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Content-Type"]) == (413, "application/problem+json")
    assert b"exceeds the limit" in answer.read()


def start_post(port: int, headers: dict[str, str]) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LINGER_S / 3)
    connection.putrequest("POST", "/v1/jobs")
    for name, value in (JSON | headers).items():
        connection.putheader(name, value)
    connection.endheaders()
    return connection


@pytest.mark.parametrize("encoding", ["declared", "in chunks"])
def test_a_client_that_is_slow_to_send_still_gets_its_answer(port, encoding):
    piece, pieces = b"x" * (1 << 16), 40
    if encoding == "declared":
        sent, headers = piece, {"Content-Length": str(len(piece) * pieces)}
    else:
        sent, headers = b"%x\r\n%s\r\n" % (len(piece), piece), {"Transfer-Encoding": "chunked"}
    with closing(start_post(port, headers)) as connection:
        for _ in range(pieces):
            connection.send(sent)
            time.sleep(0.01)
        if encoding == "in chunks":
            connection.send(b"0\r\n\r\n")
        require_refusal(connection)


@pytest.mark.parametrize("pieces", [0, 1, 100])
def test_a_body_that_takes_too_long_is_given_up(url, machine, pieces):
    settings = settings_for(url, body_seconds=0.3)
    app = create_app(settings, 0, machine=machine, toolchain=TOOLCHAIN)
    with serving(app) as port, socket.create_connection(("127.0.0.1", port), 30) as client:
        client.sendall(
            b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 1000\r\n\r\n"
        )
        for _ in range(pieces):
            try:
                client.sendall(b" ")
            except OSError:
                break
            time.sleep(0.02)
        answer = http.client.HTTPResponse(client)
        answer.begin()
        assert answer.status == 408
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.headers["Connection"] == "close"
        assert b"send it faster" in answer.read()
