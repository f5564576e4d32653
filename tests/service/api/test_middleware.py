import asyncio
import gzip
import http.client
import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from fastapi.testclient import TestClient

from tests.service.api.answers import assert_nothing_stored, assert_problem, headers_of
from tests.service.conftest import KEY, PROBLEM, TOOLCHAIN, settings_for
from tests.service.processes import serving, wait_until
from tilewise.service.api.middleware import LINGER_S, BodyLimit
from tilewise.service.app import create_app

MOST = 2048
SCRIPT = f"/v1/schedules/{KEY}/script"
JSON = {"Content-Type": "application/json"}
HEAD = "{} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture
def make_app(url, machine):
    how = {"machine": machine, "toolchain": TOOLCHAIN}
    return lambda **settings: create_app(settings_for(url, **settings), 0, **how)


@pytest.fixture
def port(make_app, caplog):
    """The port of a service that asks for tokens."""
    with serving(make_app(require_tokens=True)) as at:
        yield at


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/schedules/lookup"])
@pytest.mark.parametrize("pieces", [1, 4], ids=["declared", "in chunks"])
def test_a_body_that_is_too_large_is_refused(client_factory, sessions, path, pieces):
    body = b'{"problem": "%s"}' % PROBLEM.encode()
    body += b" " * (MOST + 1 - len(body))
    size = len(body) // pieces + 1
    sent = [body[at : at + size] for at in range(0, len(body), size)]
    client = client_factory(body_bytes=MOST)
    answer = client.post(path, content=body if pieces == 1 else iter(sent), headers=JSON)
    details = assert_problem(answer, 413, "exceeds the limit of 2 KiB")
    assert details["instance"] == path
    assert_nothing_stored(sessions)


def test_head_answers_as_get_without_the_body(client, tuned):
    for path in (SCRIPT, "/v1/jobs", f"/v1/schedules?problem={PROBLEM}", "/openapi.json"):
        got, head = client.get(path), client.head(path)
        assert (head.status_code, head.content) == (200, b""), path
        assert headers_of(head) == headers_of(got), path
    etag = client.head(SCRIPT).headers["ETag"]
    assert client.head(SCRIPT, headers={"If-None-Match": etag}).status_code == 304
    assert client.head("/v1/jobs/99").status_code == 404
    assert client.head("/v1/schedules/lookup").status_code == 405


def test_head_of_a_stream_comes_to_an_end(make_app):
    app, ended = make_app(), threading.Event()

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


def connect(port, timeout=30):
    return http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)


@pytest.mark.parametrize("is_chunked", [False, True], ids=["declared", "in chunks"])
def test_a_client_that_is_slow_to_send_still_gets_its_answer(make_app, is_chunked):
    def slowly():
        for _ in range(40):
            yield b"x" * (1 << 16)
            time.sleep(0.01)

    size = {"Transfer-Encoding": "chunked"} if is_chunked else {"Content-Length": str(40 << 16)}
    with serving(make_app(body_bytes=MOST)) as port, closing(connect(port, LINGER_S / 3)) as to:
        to.request("POST", "/v1/jobs", slowly(), JSON | size, encode_chunked=is_chunked)
        answer = to.getresponse()
        assert (answer.status, answer.headers["Content-Type"]) == (413, "application/problem+json")
        assert b"exceeds the limit" in answer.read()


@pytest.mark.parametrize("pieces", [0, 1, 100])
def test_a_body_that_takes_too_long_is_given_up(make_app, pieces):
    with (
        serving(make_app(body_seconds=0.3)) as port,
        socket.create_connection(("127.0.0.1", port), 30) as client,
    ):
        client.sendall(HEAD.format("POST /v1/jobs").encode() + b"Content-Length: 1000\r\n\r\n")
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


def exchange(port, request):
    with socket.create_connection(("127.0.0.1", port), 30) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(1 << 16), b""))


@pytest.mark.full
@pytest.mark.parametrize(("line", "chunks"), [
    ("POST /v1/jobs", b"ZZZ\r\nabc\r\n"), ("POST /v1/nothing", b"4\r\nabcd\r\n-1\r\n"),
    ("GET /", b"4\r\nabcdefgh\r\n"), ("POST /sign-in", b"ZZZ\r\nabc\r\n"),
    ("POST /v1/jobs", b"4\r\nabcd\r\n-1\r\n"), ("POST /v1/jobs", b"4\r\nabcdefgh\r\n"),
])  # fmt: skip
def test_a_malformed_chunk_is_no_fault_of_the_service(port, caplog, line, chunks):
    head = HEAD.format(line) + "Transfer-Encoding: chunked\r\n\r\n"
    assert exchange(port, head.encode() + chunks).startswith(b"HTTP/1.1 4")
    faults = [one for one in caplog.records if one.levelno >= logging.ERROR or one.exc_info]
    assert not faults, faults


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/models", "/v1/plans", "/v1/problems/parse"])
@pytest.mark.parametrize("sent", [
    "Content-Length: 100\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
], ids=["declared", "chunked"])  # fmt: skip
def test_a_client_that_leaves_within_its_body_is_no_fault(make_app, caplog, path, sent):
    caplog.set_level(logging.INFO)
    with serving(make_app()) as at:
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
    with closing(connect(port)) as connection:
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        assert answer.status == 415
        assert b"Content-Encoding: 'gzip'; send it plain" in answer.read()
        connection.request("POST", path, b"{}", headers | {"Content-Encoding": "identity"})
        assert connection.getresponse().status == 401, "the body is taken, and no token is shown"


def test_no_answer_leads_to_a_host_that_the_client_named(make_app):
    with serving(make_app(allowed_hosts="*")) as at:
        for path in ("//x/", "//evil.test/", "/v1/jobs/", "/sign-in/", "/healthz/"):
            with closing(connect(at)) as connection:
                connection.request("GET", path, headers={"Host": "evil.test"})
                answer = connection.getresponse()
                assert "evil.test" not in answer.getheader("Location", "")
                assert answer.status == 404


def post(port, size, is_chunked):
    body = (b"x" * 512 for _ in range(size // 512)) if is_chunked else b"x" * size
    headers = {"Transfer-Encoding": "chunked"} if is_chunked else {}
    with closing(connect(port)) as connection:
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

    with serving(app) as at, ThreadPoolExecutor(2) as threads:
        first = [threads.submit(post, at, 4096, is_chunked) for _ in range(2)]
        assert all(arrived.acquire(timeout=30) for _ in first)
        status, retry_after = post(at, 4096, is_chunked)
        assert status == 503 and int(retry_after or 0) > 0
        release.set()
        assert [one.result()[0] for one in first] == [200, 200]
        assert post(at, 4096, is_chunked)[0] == 200, "what ended gives back its bytes"
