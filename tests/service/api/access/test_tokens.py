import asyncio
from datetime import timedelta

import pytest

from tests.service import fakes
from tests.service.api.access.asking import JOB, SCRIPT, bearer, refused
from tests.service.conftest import PROBLEM
from tilewise.service.api.access import gate
from tilewise.service.db import models, tokens, writing
from tilewise.service.db.base import now
from tilewise.service.jobs.trial_store import SqlTrialStore

READS = ["/v1/jobs", f"/v1/schedules?problem={PROBLEM}", SCRIPT, "/v1/trials", "/v1/targets",
         "/v1/jobs/1/events", "/openapi.json", "/docs"]  # fmt: skip


@pytest.mark.full
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


@pytest.mark.full
@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ("Bearer tw_wrong", "unknown, expired or revoked"),
        ("Bearer ", "unknown"),
        ("Basic dXNlcjpwYXNz", "unknown"),
        ("Bearer tw_wrong, Bearer tw_other", "unknown"),
        ("Bearer \u00ff\u00fe", "unknown"),
        ("Bearer " + "x" * 10_000, "unknown"),
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
            "type": "http", "method": "GET", "path": path, "raw_path": path.encode(),
            "query_string": b"", "headers": headers, "asgi": {"spec_version": "2.4"},
            "client": ("10.0.0.9", 1), "server": ("testserver", 80), "scheme": "http",
            "http_version": "1.1",
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
    assert refused(client.get("/v1/jobs", headers=bearer(token)), 401)


CALLS = [
    ("GET", "/v1/jobs", None, "read"),
    ("POST", "/v1/schedules/lookup", {"problems": [PROBLEM]}, "read"),
    ("POST", "/v1/jobs", JOB, "submit"),
    ("DELETE", "/v1/jobs/1", None, "submit"),
    ("GET", "/v1/tokens", None, "admin"),
    ("POST", "/v1/tokens", {"name": "another", "scope": "read"}, "admin"),
    ("DELETE", "/v1/tokens/ci", None, "admin"),
]


@pytest.mark.full
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


@pytest.mark.full
@pytest.mark.parametrize(
    "body",
    [
        {"name": "", "scope": "read"},
        {"name": "../x", "scope": "read"},
        {"name": "x" * 101, "scope": "read"},
        {"name": "x", "scope": "root"},
        {"name": "x", "scope": "read", "days": 0},
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


def test_a_token_has_so_many_jobs_in_flight(guarded, make_token):
    client, token = guarded(jobs_in_flight=2), bearer(make_token("a", "submit"))

    def post(m, headers=token):
        body = {"problem": f"matmul:m={m},n=8,k=8,dtype=f32", "trials": 4}
        return client.post("/v1/jobs", json=body, headers=headers)

    first = post(1).json()["id"]
    assert post(2).status_code == post(2).status_code == 202, "to join a job is no new one"
    answer = post(3)
    assert (
        refused(answer, 429, "already has 2 queued or running jobs")
        and int(answer.headers["Retry-After"]) > 0
    )
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
