from unittest.mock import patch
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.service.api.answers import assert_problem
from tests.service.conftest import PROBLEM, bearer
from tests.service.dashboard.answers import BROWSER, OWN, assert_page
from tests.service.dashboard.conftest import store_reports
from tilewise.service.dashboard import stored
from tilewise.service.errors import BusyError

PROGRAM = {"Accept": "*/*"}


@pytest.fixture
def serving(client_factory):
    return client_factory(raises=False)


def assert_refusal(answer, status, said):
    assert_page(answer, status, said)
    assert answer.headers["cache-control"] == "no-store"


def test_a_place_that_is_not_there_another_host_a_busy_database_and_a_fault_of_ours(serving):
    assert_refusal(serving.get("/nothing", headers=BROWSER), 404, "nothing is at")
    assert_problem(serving.get("/nothing", headers=PROGRAM), 404, "nothing is at '/nothing'")
    assert_problem(serving.get("/v1/nothing", headers=BROWSER), 404, "/api lists")
    page = serving.get("/nothing", headers=BROWSER).text
    assert page.count("Not Found") == 2, "in the title and in the heading alone"
    answer = serving.post("/jobs", headers=OWN)
    assert_refusal(answer, 405, "Method Not Allowed")
    assert answer.headers["allow"] == "GET, HEAD"
    foreign = {"Host": "evil.example"}
    assert_refusal(serving.get("/", headers=BROWSER | foreign), 421, "TILEWISE_ALLOWED_HOSTS")
    assert_problem(serving.get("/", headers=PROGRAM | foreign), 421, "TILEWISE_ALLOWED_HOSTS")
    with patch.object(stored, "live", side_effect=BusyError("every thread is in use")):
        answer = serving.get("/", headers=BROWSER)
        assert_refusal(answer, 503, "every thread is in use")
        assert int(answer.headers["retry-after"]) > 0
    with patch.object(stored, "live", side_effect=ZeroDivisionError("secret")):
        answer = serving.get("/", headers=BROWSER)
        assert_refusal(answer, 500, "its log says more")
        assert "secret" not in answer.text
        assert_problem(serving.get("/", headers=PROGRAM), 500, "its log says more")


def test_a_token_that_may_not(client_factory, make_token):
    client = client_factory(require_tokens=True)
    client.post("/sign-in", data={"token": make_token()}, headers=OWN)
    answer = client.post("/submit", data={"problem": PROBLEM}, headers=OWN)
    assert_refusal(answer, 403, "this takes a token of scope submit, not read")
    assert 'href="/submit"' not in answer.text
    refused = client.get("/", headers=PROGRAM | bearer("tw_no"))
    assert_problem(refused, 401, "unknown, expired or revoked")
    answer = client.get("/", headers=BROWSER | bearer("tw_no"))
    assert_refusal(answer, 401, "unknown, expired or revoked")
    assert answer.headers["www-authenticate"].startswith("Bearer")


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


@pytest.mark.full
def test_no_request_for_a_page_makes_the_service_fail(serving, tuned):
    store_reports(serving)

    @settings(max_examples=300, deadline=None, database=None)
    @given(PLACES, TEXTS, st.dictionaries(NAMES, TEXTS, max_size=4), st.booleans())
    def ask(place, part, query, is_browser):
        headers = BROWSER if is_browser else PROGRAM
        path = place.format(quote(part, safe="%"))
        answer = serving.get(path, params=query, headers=headers, follow_redirects=False)
        assert answer.status_code < 500, (path, query, answer.text)
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-frame-options"] == "DENY"

    ask()
