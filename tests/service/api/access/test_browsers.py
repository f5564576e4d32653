import json

import pytest

from tests.service.api.access.asking import JOB, bearer, refused
from tilewise.service.api.access.caller import is_allowed_host


@pytest.mark.parametrize(
    ("host", "is_let_in"),
    [
        ("localhost", True),
        ("127.0.0.1:8000", True),
        ("[::1]:8000", True),
        ("testserver", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("evil.example@localhost", True),  # what stands before an @ is no part of the host
        ("10.0.0.1", False),
        ("", False),
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
