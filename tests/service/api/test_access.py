import asyncio
import logging
from datetime import timedelta

import pytest

from tests.service import fakes
from tests.service.api.answers import assert_problem, assert_refused
from tests.service.conftest import KEY, OTHER, PROBLEM, bearer
from tilewise.service.api.access import gate
from tilewise.service.api.access.caller import is_allowed_host
from tilewise.service.db import models, tokens, writing
from tilewise.service.db.base import now
from tilewise.service.jobs.trial_store import SqlTrialStore

JOB = {"problem": OTHER, "trials": 4}
SCRIPT = f"/v1/schedules/{KEY}/script"


@pytest.fixture
def guarded(client_factory, tuned):
    """Starts a service as it is beyond loopback: nobody is answered without a token."""
    return lambda **settings: client_factory(require_tokens=True, **settings)


@pytest.mark.full
def test_reading_takes_a_token_and_health_is_open(guarded, make_token):
    client, headers = guarded(), bearer(make_token())
    named = ("jobs", f"schedules?problem={PROBLEM}", "trials", "targets", "jobs/1/events")
    for path in (SCRIPT, "/openapi.json", "/docs", "/metrics", *(f"/v1/{name}" for name in named)):
        answer = client.get(path)
        assert_problem(answer, 401, "show a token")
        assert answer.headers["WWW-Authenticate"] == 'Bearer realm="tilewise"'
        assert client.get(path, headers=headers).status_code == 200
    for path in ("/healthz", "/readyz"):
        assert client.get(path).status_code == 200


def test_what_is_no_token_is_refused(guarded, make_token):
    client, _ = guarded(), make_token()
    for sent in (
        "Bearer tw_wrong", "Bearer ", "Basic dXNlcjpwYXNz", "Bearer tw_wrong, Bearer tw_other",
        "Bearer \u00ff\u00fe", "Bearer " + "x" * 10_000,
    ):  # fmt: skip
        answer = client.get("/v1/jobs", headers={"Authorization": sent.encode("latin-1")})
        assert_problem(answer, 401, "unknown, expired or revoked")
        assert 'error="invalid_token"' in answer.headers["WWW-Authenticate"]


def test_a_wrong_or_expired_token_is_refused_also_where_none_is_needed(client, make_token):
    expired = make_token("old", expires=now() - timedelta(seconds=1))
    later = make_token("new", expires=now() + timedelta(days=1))
    for headers, status in (({}, 200), (bearer(later), 200), (bearer(expired), 401),
                            (bearer("tw_x"), 401)):  # fmt: skip
        assert client.get("/v1/jobs", headers=headers).status_code == status


@pytest.mark.parametrize("place", ["/v1/jobs/{}/events", "/live"])
def test_a_stream_ends_when_its_token_is_revoked(guarded, make_token, sessions, submit, place):
    """Nothing is sent once that is known, and the stream does not go on for an hour."""
    job_id = submit(PROBLEM + ",bias")
    client, token = guarded(stream_seconds=60.0), make_token()
    app, sent = client.app, []

    async def ask():
        path, known = place.format(job_id), app.state.services.tokens
        headers = [(b"host", b"testserver"), (b"authorization", f"Bearer {token}".encode())]
        scope = {
            "type": "http", "method": "GET", "path": path, "query_string": b"", "scheme": "http",
            "headers": headers, "client": ("10.0.0.9", 1), "server": ("testserver", 80),
        }  # fmt: skip

        async def receive():
            await asyncio.sleep(3600)

        async def send(message):
            sent.append(message)
            if message["type"] == "http.response.body" and message.get("body", b"").count(b"\n"):
                with writing(sessions) as session:
                    if not any(one.get("revoked") for one in sent):
                        tokens.revoke(session, "ci")
                        message["revoked"] = True
                known.forget()
                SqlTrialStore(sessions, job_id).add(fakes.trial(len(sent)))

        async with asyncio.timeout(30):
            await app(scope, receive, send)

    client.portal.call(ask)
    bodies = [one for one in sent if one["type"] == "http.response.body"]
    assert sent[0]["status"] == 200 and bodies[0]["more_body"]
    assert [one["body"] for one in bodies[1:]] == [b""] and not bodies[-1]["more_body"]
    assert_problem(client.get("/v1/jobs", headers=bearer(token)), 401)


@pytest.mark.full
@pytest.mark.parametrize("scope", ["read", "submit", "admin"])
def test_each_scope_may_do_what_it_says(guarded, make_token, scope):
    client, headers = guarded(), bearer(make_token(scope=scope))
    for method, path, body, needs in (
        ("POST", "/v1/schedules/lookup", {"problems": [PROBLEM]}, "read"),
        ("POST", "/v1/schedules/lookup", {"problems": [PROBLEM], "trials": 4}, "submit"),
        ("POST", "/v1/jobs", JOB, "submit"), ("DELETE", "/v1/jobs/1", None, "submit"),
        ("GET", "/v1/jobs", None, "read"), ("GET", "/v1/tokens", None, "admin"),
        ("POST", "/v1/tokens", {"name": "another", "scope": "read"}, "admin"),
        ("DELETE", "/v1/tokens/ci", None, "admin"),
    ):  # fmt: skip
        answer = client.request(method, path, json=body, headers=headers)
        if gate.SCOPES.index(scope) < gate.SCOPES.index(needs):
            assert_problem(answer, 403, f"scope {needs}, not {scope}")
        elif path != "/v1/jobs/1":  # that of another token
            assert answer.is_success, answer.text


def test_tokens_are_made_listed_and_revoked(guarded, make_token, sessions):
    client, admin = guarded(), bearer(make_token("root", "admin"))
    made = client.post("/v1/tokens", json={"name": "ci", "scope": "read", "days": 7}, headers=admin)
    assert made.status_code == 201
    token = made.json()["token"]
    assert token.startswith("tw_") and len(token) >= 46
    assert client.get("/v1/jobs", headers=bearer(token)).status_code == 200
    twice = client.post("/v1/tokens", json={"name": "ci", "scope": "admin"}, headers=admin)
    assert_problem(twice, 409, "revoke it")
    listed = client.get("/v1/tokens", headers=admin)
    assert token not in listed.text
    first, second = listed.json()["tokens"]
    assert (first["name"], second["name"]) == ("ci", "root") and first["used"] is not None
    for _ in range(2):
        gone = client.delete("/v1/tokens/ci", headers=admin)
        assert gone.status_code == 200 and gone.json()["revoked"]
    assert_problem(client.get("/v1/jobs", headers=bearer(token)), 401)
    assert_problem(client.delete("/v1/tokens/nobody", headers=admin), 404)
    with sessions() as session:
        for row in session.query(models.Token):
            assert token not in str(vars(row)), "the database has digests alone"


def test_managing_tokens_takes_one_on_loopback_too_and_refuses_bad_ones(client, make_token):
    assert_problem(client.get("/v1/tokens"), 401, "scope admin")
    headers, whole = bearer(make_token(scope="admin")), {"name": "x", "scope": "read"}
    for change in (
        {"name": ""}, {"name": "../x"}, {"name": "x" * 101}, {"name": None}, {"scope": "root"},
        {"days": 0}, {"admin": True},
    ):  # fmt: skip
        answer = client.post("/v1/tokens", json=whole | change, headers=headers)
        assert_refused(answer, *change)


def test_a_job_is_cancelled_by_who_asked_for_it_or_an_admin(guarded, make_token):
    client = guarded()
    mine, other = bearer(make_token("a", "submit")), bearer(make_token("b", "submit"))
    admin = bearer(make_token("c", "admin"))
    first = client.post("/v1/jobs", json=JOB, headers=mine).json()["id"]
    assert_problem(client.delete(f"/v1/jobs/{first}", headers=other), 403, "another token")
    assert client.delete(f"/v1/jobs/{first}", headers=mine).status_code == 200
    second = client.post("/v1/jobs", json=JOB, headers=mine).json()["id"]
    assert client.delete(f"/v1/jobs/{second}", headers=admin).status_code == 200


def test_a_token_has_so_many_jobs_in_flight(guarded, make_token):
    client, token = guarded(jobs_in_flight=2), bearer(make_token("a", "submit"))

    def post(m, headers=token):
        body = {"problem": f"matmul:m={m},n=8,k=8,dtype=f32", "trials": 4}
        return client.post("/v1/jobs", json=body, headers=headers)

    first = post(1).json()["id"]
    assert post(2).status_code == post(2).status_code == 202, "to join a job is no new one"
    wanted = {"problems": [OTHER], "trials": 4}
    for answer in (post(3), client.post("/v1/schedules/lookup", json=wanted, headers=token)):
        assert_problem(answer, 429, "already has 2 queued or running jobs")
        assert int(answer.headers["Retry-After"]) > 0
    assert post(3, bearer(make_token("b", "submit"))).status_code == 202
    client.delete(f"/v1/jobs/{first}", headers=token)
    assert post(4).status_code == 202


def test_who_asks_or_guesses_too_often_is_told_when_to_ask_again(guarded, make_token):
    client = guarded(requests_per_minute=5)
    headers = bearer(make_token())
    answers = [client.get("/v1/jobs", headers=headers) for _ in range(7)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429] * 2
    assert 1 <= int(answers[-1].headers["Retry-After"]) <= 12
    assert client.get("/healthz").status_code == 200
    other = guarded(requests_per_minute=5)
    guesses = [other.get("/v1/jobs", headers=bearer(f"tw_{n}")).status_code for n in range(9)]
    assert guesses == [401] * 5 + [429] * 4


def test_tokens_stand_in_no_log(guarded, make_token, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    client, token = guarded(), make_token()
    client.get("/v1/jobs", headers=bearer(token))
    client.get(f"/v1/jobs?token={token}x", headers=bearer(token + "x"))
    said = caplog.text + "".join(capfd.readouterr())
    assert token[3:] not in "".join(line for line in said.splitlines() if "GET http" not in line)


def test_a_name_that_was_made_to_lead_here_is_refused(client):
    """DNS rebinding: the page's own name, resolved to this machine."""
    for host in ("localhost", "127.0.0.1:8000", "[::1]:8000", "testserver"):
        assert client.get("/v1/jobs", headers={"Host": host}).status_code == 200
    for host in ("evil.example", "localhost.evil.example", "10.0.0.1", ""):
        refused = client.get("/v1/jobs", headers={"Host": host})
        assert_problem(refused, 421, "TILEWISE_ALLOWED_HOSTS")
    # What stands before an @ is no part of the host.
    assert is_allowed_host("evil.example@localhost", ())


def test_beyond_loopback_any_name_may_be_asked_unless_names_are_given(guarded, make_token):
    headers = bearer(make_token())
    named = guarded(allowed_hosts="tilewise.example, testserver")
    assert named.get("/v1/jobs", headers=headers | {"Host": "tilewise.example"}).status_code == 200
    assert_problem(named.get("/v1/jobs", headers=headers | {"Host": "other.example"}), 421)
    anywhere = guarded(allowed_hosts="")
    assert anywhere.get("/v1/jobs", headers=headers | {"Host": "x.example"}).status_code == 200


PAGE, OWN = {"Origin": "http://evil.example"}, {"Origin": "http://testserver"}


def test_a_page_of_another_origin_does_nothing_here(client):
    before = client.get("/v1/jobs").json()
    for method, headers in (
        ("POST", PAGE), ("DELETE", PAGE), ("POST", {"Origin": "null"}),
        ("POST", {"Origin": "http://testserver:81"}), ("POST", {"Sec-Fetch-Site": "cross-site"}),
        ("POST", {"Sec-Fetch-Site": "same-site", **OWN}),
        ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}),
        ("OPTIONS", {**PAGE, "Access-Control-Request-Method": "POST"}),
    ):  # fmt: skip
        path = "/v1/jobs/1" if method == "DELETE" else "/v1/jobs"
        body = JOB if method == "POST" else None
        answer = client.request(method, path, json=body, headers=headers)
        assert_problem(answer, 403, "another origin")
        assert "access-control-allow-origin" not in answer.headers
    assert client.get("/v1/jobs").json() == before
    for headers in (OWN, {"Sec-Fetch-Site": "same-origin", **OWN}, {}):
        assert client.post("/v1/jobs", json=JOB, headers=headers).is_success
    for site in ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
                 {"Sec-Fetch-Site": "none"}):  # fmt: skip
        answer = client.get("/v1/jobs", headers=site)
        assert answer.is_success and "access-control-allow-origin" not in answer.headers


def test_every_answer_is_no_page(client, tuned):
    for path in ("/v1/jobs", "/nothing", "/v1/jobs/x", SCRIPT, "/healthz"):
        headers = client.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        (policy,) = headers.get_list("Content-Security-Policy")
        assert policy.startswith("default-src 'none'; frame-ancestors")
        assert headers["X-Frame-Options"] == "DENY" and headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Cache-Control"] == ("no-cache" if path == SCRIPT else "no-store")
