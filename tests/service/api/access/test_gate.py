"""Who is let in, and the right answer to everybody else."""

import json
import logging
import threading
from datetime import timedelta

import pytest
from fastapi.testclient import TestClient

from kernels.problem import parse_problem
from service.api.access import gate
from service.api.access.browsers import is_allowed_host
from service.api.access.limits import RequestLimit
from service.app import create_app
from service.db import models, tokens, writing
from service.db.base import now
from tests.service.conftest import PROBLEM, TOOLCHAIN, settings_for

KEY = parse_problem(PROBLEM).key
SCRIPT = f"/v1/schedules/{KEY}/script"
JOB = {"problem": "matmul:m=8,n=8,k=8,dtype=f32", "trials": 4}


@pytest.fixture
def make_token(sessions):
    def make(name="ci", scope="read", expires=None, revoked=False):
        with writing(sessions) as session:
            token = tokens.create(session, name, scope, expires)
            if revoked:
                tokens.revoke(session, name)
        return token

    return make


@pytest.fixture
def guarded(url, machine, tuned):
    """A service as it is beyond loopback: nobody is answered without a token."""
    made = []

    def make(**settings):
        chosen = settings_for(url, require_tokens=True, **settings)
        app = create_app(chosen, 0, machine=machine, toolchain=TOOLCHAIN)
        made.append(TestClient(app))
        return made[-1].__enter__()

    yield make
    for client in made:
        client.__exit__(None, None, None)


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def refused(answer, status, said=""):
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert said in answer.json()["detail"]
    return True


READS = ["/v1/jobs", f"/v1/schedules?problem={PROBLEM}", SCRIPT, "/v1/trials", "/v1/targets",
         "/v1/jobs/1/events", "/openapi.json", "/docs"]  # fmt: skip


@pytest.mark.parametrize("path", READS)
def test_reading_takes_a_token(guarded, make_token, path):
    client = guarded()
    answer = client.get(path)
    assert refused(answer, 401, "show a token")
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="tilewise"'
    assert client.get(path, headers=bearer(make_token())).status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_is_open(guarded, path):
    assert guarded().get(path).status_code == 200


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ("Bearer tw_wrong", "unknown, expired or revoked"),
        ("Bearer ", "unknown"),
        ("Bearer", "unknown"),
        ("Basic dXNlcjpwYXNz", "unknown"),
        ("Bearer tw_wrong, Bearer tw_other", "unknown"),
        ("Bearer \u00ff\u00fe", "unknown"),
        ("Bearer " + "x" * 10_000, "unknown"),
        ("Bearer ' OR 1=1 --", "unknown"),
        ("Bearer $(reboot)", "unknown"),
    ],
    ids=ascii,
)
def test_what_is_no_token_is_refused(guarded, make_token, sent, said):
    make_token()
    answer = guarded().get("/v1/jobs", headers={"Authorization": sent.encode("latin-1")})
    assert refused(answer, 401, said)
    assert 'error="invalid_token"' in answer.headers["WWW-Authenticate"]


def test_a_wrong_token_is_refused_also_where_none_is_needed(client, make_token):
    assert client.get("/v1/jobs").status_code == 200
    assert client.get("/v1/jobs", headers=bearer(make_token())).status_code == 200
    assert refused(client.get("/v1/jobs", headers=bearer("tw_x")), 401)


def test_an_expired_or_revoked_token_is_worth_nothing(guarded, make_token):
    client = guarded()
    expired = make_token("old", expires=now() - timedelta(seconds=1))
    assert refused(client.get("/v1/jobs", headers=bearer(expired)), 401)
    assert refused(client.get("/v1/jobs", headers=bearer(make_token("x", revoked=True))), 401)
    later = make_token("new", expires=now() + timedelta(days=1))
    assert client.get("/v1/jobs", headers=bearer(later)).status_code == 200


def test_a_token_that_is_revoked_elsewhere_is_found_out(guarded, make_token, sessions, monkeypatch):
    client, token = guarded(), make_token()
    assert client.get(SCRIPT, headers=bearer(token)).status_code == 200
    with writing(sessions) as session:
        tokens.revoke(session, "ci")
    book = client.app.state.services.tokens
    for known in book._known.values():
        known.until_s -= 1.0  # a second later
    assert refused(client.get(SCRIPT, headers=bearer(token)), 401), "not from what is kept either"


CALLS = [
    ("GET", "/v1/jobs", None, "read"),
    ("POST", "/v1/schedules/lookup", {"problems": [PROBLEM]}, "read"),
    ("POST", "/v1/jobs", JOB, "submit"),
    ("DELETE", "/v1/jobs/1", None, "submit"),
    ("GET", "/v1/tokens", None, "admin"),
    ("POST", "/v1/tokens", {"name": "another", "scope": "read"}, "admin"),
    ("DELETE", "/v1/tokens/ci", None, "admin"),
]


@pytest.mark.parametrize("scope", ["read", "submit", "admin"])
@pytest.mark.parametrize(("method", "path", "body", "needs"), CALLS, ids=lambda x: str(x)[:24])
def test_each_scope_may_do_what_it_says(guarded, make_token, scope, method, path, body, needs):
    client = guarded()
    answer = client.request(method, path, json=body, headers=bearer(make_token(scope=scope)))
    may = gate.SCOPES.index(scope) >= gate.SCOPES.index(needs)
    if may and path != "/v1/jobs/1":
        assert answer.is_success, answer.text
    elif not may:
        assert refused(answer, 403, f"scope {needs}, not {scope}")


def test_every_route_needs_some_scope(client):
    for path, operations in client.get("/openapi.json").json()["paths"].items():
        for method in operations:
            if path not in gate.OPEN:
                assert gate.needed(method.upper(), path) in gate.SCOPES
    assert gate.needed("POST", "/v1/anything/new") == "submit"
    assert gate.needed("GET", "/v1/tokens/x") == "admin"


def test_managing_tokens_takes_one_on_loopback_too(client, make_token):
    assert refused(client.get("/v1/tokens"), 401, "scope admin")
    assert client.get("/v1/tokens", headers=bearer(make_token(scope="admin"))).is_success


def test_tokens_are_made_listed_and_revoked(guarded, make_token, sessions):
    client, admin = guarded(), bearer(make_token("root", "admin"))
    made = client.post("/v1/tokens", json={"name": "ci", "scope": "read", "days": 7}, headers=admin)
    assert made.status_code == 201
    token = made.json()["token"]
    assert token.startswith("tw_") and len(token) >= 46
    assert client.get("/v1/jobs", headers=bearer(token)).status_code == 200
    twice = client.post("/v1/tokens", json={"name": "ci", "scope": "admin"}, headers=admin)
    assert refused(twice, 409, "revoke it")
    listed = client.get("/v1/tokens", headers=admin)
    assert token not in listed.text and [t["name"] for t in listed.json()["tokens"]] == [
        "ci",
        "root",
    ]
    assert listed.json()["tokens"][0]["used"] is not None
    for _ in range(2):
        gone = client.delete("/v1/tokens/ci", headers=admin)
        assert gone.status_code == 200 and gone.json()["revoked"]
    assert refused(client.get("/v1/jobs", headers=bearer(token)), 401)
    assert refused(client.delete("/v1/tokens/nobody", headers=admin), 404)
    with sessions() as session:
        for row in session.query(models.Token):
            assert token not in str(vars(row)), "the database has digests alone"


@pytest.mark.parametrize(
    "body",
    [
        {"name": "", "scope": "read"},
        {"name": "a b", "scope": "read"},
        {"name": "../x", "scope": "read"},
        {"name": "x" * 101, "scope": "read"},
        {"name": "x\n", "scope": "read"},
        {"name": "x", "scope": "root"},
        {"name": "x", "scope": "read", "days": 0},
        {"name": "x", "scope": "read", "days": 1e9},
        {"name": "x", "scope": "read", "admin": True},
        {"scope": "read"},
    ],
)
def test_what_is_no_token_to_make(guarded, make_token, body):
    answer = guarded().post("/v1/tokens", json=body, headers=bearer(make_token(scope="admin")))
    assert refused(answer, 422)


def test_a_job_is_cancelled_by_who_asked_for_it_or_an_admin(guarded, make_token):
    client = guarded()
    mine, other = bearer(make_token("a", "submit")), bearer(make_token("b", "submit"))
    admin = bearer(make_token("c", "admin"))
    first = client.post("/v1/jobs", json=JOB, headers=mine).json()["id"]
    assert refused(client.delete(f"/v1/jobs/{first}", headers=other), 403, "another token")
    assert client.delete(f"/v1/jobs/{first}", headers=mine).status_code == 200
    second = client.post("/v1/jobs", json=JOB, headers=mine).json()["id"]
    assert client.delete(f"/v1/jobs/{second}", headers=admin).status_code == 200


def test_keys_of_different_tokens_have_nothing_to_do_with_each_other(guarded, make_token):
    client = guarded()
    for name, trials in (("a", 4), ("b", 5)):
        headers = bearer(make_token(name, "submit")) | {"Idempotency-Key": "the-same"}
        assert client.post("/v1/jobs", json={**JOB, "trials": trials}, headers=headers).is_success


def test_a_token_has_so_many_jobs_in_flight(guarded, make_token):
    client, token = guarded(jobs_in_flight=2), bearer(make_token("a", "submit"))

    def post(m, headers=token):
        body = {"problem": f"matmul:m={m},n=8,k=8,dtype=f32", "trials": 4}
        return client.post("/v1/jobs", json=body, headers=headers)

    first = post(1).json()["id"]
    assert post(2).status_code == post(2).status_code == 202, "to join a job is no new one"
    answer = post(3)
    assert refused(answer, 429, "2 jobs of this token") and int(answer.headers["Retry-After"]) > 0
    assert post(3, bearer(make_token("b", "submit"))).status_code == 202
    client.delete(f"/v1/jobs/{first}", headers=token)
    assert post(4).status_code == 202


def test_who_asks_too_often_is_told_when_to_ask_again(guarded, make_token):
    client = guarded(requests_per_minute=5)
    one, other = bearer(make_token("a")), bearer(make_token("b"))
    answers = [client.get("/v1/jobs", headers=one) for _ in range(7)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429] * 2
    assert 1 <= int(answers[-1].headers["Retry-After"]) <= 12
    assert client.get("/v1/jobs", headers=other).status_code in (200, 429)
    assert client.get("/healthz").status_code == 200


def test_who_guesses_is_slowed_down(guarded):
    client = guarded(requests_per_minute=5)
    answers = [client.get("/v1/jobs", headers=bearer(f"tw_{n}")).status_code for n in range(9)]
    assert answers == [401] * 5 + [429] * 4


def test_a_bucket_fills_as_time_goes_by(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("service.api.access.limits.time.monotonic", lambda: clock[0])
    limit = RequestLimit(60)
    assert [limit.wait_s("a") for _ in range(61)] == [0.0] * 60 + [1.0]
    clock[0] = 0.5
    assert limit.wait_s("a") == pytest.approx(0.5)
    clock[0] = 1.0
    assert limit.wait_s("a") == 0.0 and limit.wait_s("b") == 0.0
    assert RequestLimit(0).wait_s("a") == 0.0


@pytest.mark.parametrize(
    ("host", "is_let_in"),
    [
        ("localhost", True),
        ("localhost:8000", True),
        ("LOCALHOST:1", True),
        ("127.0.0.1:8000", True),
        ("127.9.8.7", True),
        ("[::1]:8000", True),
        ("testserver", True),
        ("evil.example", False),
        ("evil.example:8000", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("evil.example@localhost", True),  # what stands before an @ is no part of the host
        ("localhost@evil.example", False),
        ("10.0.0.1", False),
        ("0.0.0.0", False),
        ("[::2]", False),
        ("", False),
        ("[", False),
        ("localhost:port:", True),
        ("2130706433", False),
    ],
)
def test_a_name_that_was_made_to_lead_here_is_refused(client, host, is_let_in):
    """DNS rebinding: the page's own name, resolved to this machine."""
    assert is_allowed_host(host, ("testserver",)) == is_let_in
    if "@" in host:
        return
    answer = client.get("/v1/jobs", headers={"Host": host})
    if is_let_in:
        assert answer.status_code == 200
    else:
        assert refused(answer, 421, "TILEWISE_ALLOWED_HOSTS")


def test_beyond_loopback_any_name_may_be_asked_with_a_token_unless_names_are_given(
    guarded, make_token
):
    headers = bearer(make_token())
    named = guarded(allowed_hosts="tilewise.example, testserver")
    assert named.get("/v1/jobs", headers=headers | {"Host": "tilewise.example"}).status_code == 200
    assert refused(named.get("/v1/jobs", headers=headers | {"Host": "other.example"}), 421)
    anywhere = guarded(allowed_hosts="")
    assert anywhere.get("/v1/jobs", headers=headers | {"Host": "x.example"}).status_code == 200


PAGE = "http://evil.example"


@pytest.mark.parametrize(
    ("method", "headers", "is_let_in"),
    [
        ("POST", {"Origin": PAGE}, False),
        ("POST", {"Origin": "null"}, False),
        ("POST", {"Origin": "http://testserver:81"}, False),
        ("POST", {"Origin": "http://testserver"}, True),
        ("POST", {"Sec-Fetch-Site": "cross-site"}, False),
        ("POST", {"Sec-Fetch-Site": "same-site", "Origin": "http://testserver"}, False),
        ("POST", {"Sec-Fetch-Site": "same-origin", "Origin": "http://testserver"}, True),
        ("POST", {}, True),
        ("DELETE", {"Origin": PAGE}, False),
        ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, False),
        ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, True),
        ("GET", {"Sec-Fetch-Site": "none"}, True),
        ("OPTIONS", {"Origin": PAGE, "Access-Control-Request-Method": "POST"}, False),
    ],
)
def test_a_page_of_another_origin_does_nothing_here(client, method, headers, is_let_in):
    before = client.get("/v1/jobs").json()
    path = "/v1/jobs/1" if method == "DELETE" else "/v1/jobs"
    answer = client.request(method, path, json=JOB if method == "POST" else None, headers=headers)
    assert "access-control-allow-origin" not in answer.headers
    if is_let_in:
        assert answer.is_success
    else:
        assert refused(answer, 403, "another origin")
        assert client.get("/v1/jobs").json() == before


def test_a_form_of_another_page_is_no_request(client):
    """A browser sends these without asking first; the bodies are no JSON documents."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = client.post("/v1/jobs", content=json.dumps(JOB), headers={"Content-Type": kind})
        assert answer.status_code == 422


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
    monkeypatch.setattr("service.jobs.queue.list_jobs", lambda *_, **__: 1 / 0)
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


@pytest.mark.parametrize("path", PATHS)
def test_no_trick_of_a_path_passes_the_gate(guarded, client, path):
    with guarded() as closed:
        assert closed.request("GET", path).status_code in (401, 404), path
    answer = client.request("GET", path, follow_redirects=False)
    assert answer.status_code in (200, 307, 401, 404, 405, 422), path
    assert "root:" not in answer.text


HOSTILE = ["'; DROP TABLE jobs; --", "$(touch x)", "`id`", "| cat /etc/passwd", "\x00", "\ud800",
           "%n%s", "{{7*7}}", "../../x", "\u202e", "<script>", "a" * 300]  # fmt: skip


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
