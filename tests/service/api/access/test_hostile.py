"""The right answer to hostile paths, texts and bodies; and no page in any answer."""

import json
import logging
import threading

import pytest
from fastapi.testclient import TestClient

from tests.service.api.access.asking import JOB, SCRIPT, bearer, refused
from tests.service.conftest import PROBLEM, TOOLCHAIN, settings_for
from tilewise.service.app import create_app


@pytest.mark.parametrize("path", ["/v1/jobs", "/nothing", "/v1/jobs/x", SCRIPT, "/healthz"])
def test_every_answer_is_no_page(client, tuned, path):
    headers = client.get(path).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; frame-ancestors")
    assert headers["X-Frame-Options"] == "DENY" and headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["Cache-Control"] == ("no-cache" if path == SCRIPT else "no-store")
    assert len(headers.get_list("Content-Security-Policy")) == 1


def test_an_answer_to_a_fault_of_ours_is_no_page_either(url, machine, monkeypatch):
    monkeypatch.setattr("tilewise.service.jobs.queue.list_jobs", lambda *_, **__: 1 / 0)
    app = create_app(settings_for(url), 0, machine=machine, toolchain=TOOLCHAIN)
    with TestClient(app, raise_server_exceptions=False) as client:
        answer = client.get("/v1/jobs")
    assert refused(answer, 500, "its log says more")
    assert answer.headers["X-Content-Type-Options"] == "nosniff" and answer.headers["X-Request-ID"]


def test_tokens_stand_in_no_log(guarded, make_token, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    client, token = guarded(), make_token()
    client.get("/v1/jobs", headers=bearer(token))
    client.get(f"/v1/jobs?token={token}x", headers=bearer(token + "x"))
    said = caplog.text + "".join(capfd.readouterr())
    assert token[3:] not in "".join(line for line in said.splitlines() if "GET http" not in line)


PATHS = [
    "/../etc/passwd", "/v1/schedules/../../etc/passwd/script", "/v1/schedules/%2e%2e%2f/script",
    "/v1//jobs", "/v1/jobs/%00", "/v1/jobs/1%2fevents", "//evil.example/v1/jobs", "/v1/jobs/1/",
    "/v1/tokens/../jobs", "/V1/JOBS", "/v1/schedules/;rm%20-rf/kernel", "/docs/../v1/tokens",
    "/healthz/../v1/jobs", "/readyz%2f..%2fv1%2fjobs", "/healthz/",
]  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("path", PATHS)
def test_no_trick_of_a_path_passes_the_gate(guarded, client, path):
    with guarded() as closed:
        assert closed.request("GET", path).status_code in (401, 404), path
    answer = client.request("GET", path, follow_redirects=False)
    assert answer.status_code in (200, 307, 401, 404, 405, 422), path
    assert "root:" not in answer.text


HOSTILE = ["'; DROP TABLE jobs; --", "$(touch x)", "`id`", "| cat /etc/passwd", "\x00", "\ud800",
           "%n%s", "{{7*7}}", "../../x", "\u202e", "<script>", "a" * 300]  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_no_text_in_a_field_does_anything(client, tuned, text, tmp_path, monkeypatch):
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    bodies = [{"problem": text}, {"problem": {"op": text}}, {**JOB, "target": text},
              {**JOB, "sampler": text}, {**JOB, "cache": text}, {text: 1, **JOB}]  # fmt: skip
    for body in bodies:
        raw = json.dumps(body).encode()
        answer = client.post("/v1/jobs", content=raw, headers={"Content-Type": "application/json"})
        assert refused(answer, 422), body
    for place in ("problem", "target", "flavor", "cache", "match", "cursor"):
        sent = text.encode("utf-8", "surrogatepass")
        answer = client.get("/v1/schedules", params={"problem": PROBLEM, place: sent})
        assert answer.status_code in (200, 422)
    if text.isprintable():
        key = client.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": text.encode()})
        assert key.status_code in (202, 422)
    assert client.get("/v1/jobs").status_code == 200
    assert not list(empty.iterdir()), "no command has run"


def test_a_problem_of_a_megabyte_is_refused(client):
    for body in ({"problem": "matmul:" + "m=1," * 262_144}, {"problem": {"op": "x" * 2**20}},
                 {"problem": {f"k{n}": 1 for n in range(50_000)}}):  # fmt: skip
        answer = client.post("/v1/jobs", json=body)
        assert refused(answer, 422) and len(answer.content) < 20_000


@pytest.mark.parametrize("raw", [b"\xff\xfe{", b'{"problem": "\xff"}', b"\x00", b"[" * 100_000,
                                 b'{"problem": "\\ud800"}', b"", b"null", b"1e999"])  # fmt: skip
def test_what_is_no_json_is_refused(client, raw):
    answer = client.post("/v1/jobs", content=raw, headers={"Content-Type": "application/json"})
    assert refused(answer, 422)


def test_two_hundred_at_once_are_one_job_for_each_token(guarded, make_token):
    client, headers = guarded(), bearer(make_token(scope="submit"))
    answers = []

    def post():
        answers.append(client.post("/v1/jobs", json=JOB, headers=headers))

    threads = [threading.Thread(target=post) for _ in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
