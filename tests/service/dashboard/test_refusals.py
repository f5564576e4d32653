from collections.abc import Callable
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.service.conftest import PROBLEM, TOOLCHAIN, settings_for
from tests.service.dashboard.conftest import store_reports
from tilewise.kernels.problem import parse_problem
from tilewise.service.app import create_app
from tilewise.service.dashboard import stored
from tilewise.service.dashboard.rendering import POLICY
from tilewise.service.db import Sessions, tokens, writing
from tilewise.service.errors import BusyError

KEY = parse_problem(PROBLEM).key
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8", "Sec-Fetch-Mode": "navigate"}
OWN = {**BROWSER, "Origin": "http://testserver", "Sec-Fetch-Site": "same-origin"}
PROGRAM = {"Accept": "*/*"}


@pytest.fixture
def serve(url: str, machine: object) -> Callable[..., TestClient]:
    def make(**changes: Any) -> TestClient:
        made = create_app(settings_for(url, **changes), 0, machine=machine, toolchain=TOOLCHAIN)
        return TestClient(made, raise_server_exceptions=False)

    return make


def assert_page(answer: Any, status: int, said: str) -> None:
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.text.count("<h1>") == 1 and said in answer.text


def assert_document(answer: Any, status: int, said: str) -> None:
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert said in answer.json()["detail"]


def test_a_place_that_is_not_there(serve: Callable[..., TestClient]) -> None:
    with serve() as client:
        assert_page(client.get("/nothing", headers=BROWSER), 404, "nothing is at")
        assert_document(client.get("/nothing", headers=PROGRAM), 404, "nothing is at '/nothing'")
        assert_document(client.get("/v1/nothing", headers=BROWSER), 404, "/api lists")
        page = client.get("/nothing", headers=BROWSER).text
        assert page.count("Not Found") == 2, "in the title and in the heading alone"
        answer = client.post("/jobs", headers=OWN)
        assert_page(answer, 405, "Method Not Allowed")
        assert answer.headers["allow"] == "GET, HEAD"


def test_another_host(serve: Callable[..., TestClient]) -> None:
    with serve() as client:
        foreign = {"Host": "evil.example"}
        assert_page(client.get("/", headers=BROWSER | foreign), 421, "TILEWISE_ALLOWED_HOSTS")
        assert_document(client.get("/", headers=PROGRAM | foreign), 421, "TILEWISE_ALLOWED_HOSTS")


def test_a_token_that_may_not(serve: Callable[..., TestClient], sessions: Sessions) -> None:
    with serve(require_tokens=True) as client:
        with writing(sessions) as session:
            token = tokens.create(session, "reader", "read", None)
        client.post("/sign-in", data={"token": token}, headers=OWN)
        answer = client.post("/submit", data={"problem": PROBLEM}, headers=OWN)
        assert_page(answer, 403, "this takes a token of scope submit, not read")
        assert 'href="/submit"' not in answer.text
        sent = {**PROGRAM, "Authorization": "Bearer tw_no"}
        answer = client.get("/", headers=sent)
        assert_document(answer, 401, "unknown, expired or revoked")
        answer = client.get("/", headers=BROWSER | {"Authorization": "Bearer tw_no"})
        assert_page(answer, 401, "unknown, expired or revoked")
        assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_busy_database_says_when_to_ask_again(serve: Callable[..., TestClient]) -> None:
    def busy(*_: object) -> None:
        raise BusyError("every thread for such requests is in use")

    with serve() as client, patch.object(stored, "live", busy):
        answer = client.get("/", headers=BROWSER)
        assert_page(answer, 503, "every thread for such requests is in use")
        assert int(answer.headers["retry-after"]) > 0


def test_a_fault_of_ours(serve: Callable[..., TestClient]) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("secret")

    with serve() as client, patch.object(stored, "live", fail):
        answer = client.get("/", headers=BROWSER)
        assert_page(answer, 500, "its log says more")
        assert "secret" not in answer.text
        assert_document(client.get("/", headers=PROGRAM), 500, "its log says more")


EMPTY = ["/", "/jobs", "/suites", "/submit", "/sign-in", "/api"]
ABSENT = ["/jobs/1", f"/problems/{KEY}", "/compare?left=1&right=2", "/suites/1",
          "/schedules/1/kernel", "/schedules/1/assembly"]  # fmt: skip


def test_an_empty_database_has_pages(serve: Callable[..., TestClient]) -> None:
    with serve() as client:
        for path in EMPTY:
            assert client.get(path, headers=BROWSER).status_code == 200, path
        for path in ABSENT:
            assert_page(client.get(path, headers=BROWSER), 404, "no ")


NUMBERS = st.sampled_from(
    ["1", "0", "-1", "01", "1.0", "1e3", "NaN", str(2**31), str(2**63), str(2**64), "9" * 400, "x",
     "", "%00", "%ff", "%2e%2e", "\u0661", "\uff11", "null", "<b>"]
)  # fmt: skip
TEXTS = st.one_of(NUMBERS, st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
PLACES = st.sampled_from(
    ["/jobs/{}", "/problems/{}", "/schedules/{}/kernel", "/schedules/{}/assembly", "/suites/{}",
     "/plots/jobs/{}/convergence", "/plots/jobs/1/{}", "/plots/schedules/{}/roofline",
     "/plots/problems/{}/history", "/plots/compare/{}/1", "/plots/suites/{}/history",
     "/plots/suites/{}/roofline", "/assets/{}/style.css", "/jobs", "/", "/compare", "/submit",
     "/sign-in", "/submit/check", "/suites"]
)  # fmt: skip
NAMES = st.sampled_from(
    ["page", "order", "state", "contains", "before", "schedule", "left", "right", "problem",
     "target", "next", "x"]
)  # fmt: skip


@pytest.fixture
def busy_service(serve: Callable[..., TestClient], tuned: int) -> Any:
    with serve() as client:
        store_reports(client)
        yield client


@pytest.mark.full
def test_no_request_for_a_page_makes_the_service_fail(busy_service: TestClient) -> None:
    @settings(max_examples=300, deadline=None, database=None)
    @given(PLACES, TEXTS, st.dictionaries(NAMES, TEXTS, max_size=4), st.booleans())
    def ask(place: str, part: str, query: dict[str, str], is_browser: bool) -> None:
        headers = BROWSER if is_browser else PROGRAM
        path = place.format(quote(part, safe="%"))
        answer = busy_service.get(path, params=query, headers=headers, follow_redirects=False)
        assert answer.status_code < 500, (path, query, answer.text)
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-frame-options"] == "DENY"

    ask()
