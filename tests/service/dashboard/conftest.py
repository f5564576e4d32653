"""A browser, and a service with fakes for a search that it looks at."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect
from sqlalchemy import select

from benchmarks.watching.suite_reports import reports
from tests.service.conftest import PROBLEM
from tests.service.processes import FAKE_PROVER, ServiceProcess, serving
from tilewise.service.app import create_app
from tilewise.service.db import Sessions, models
from tilewise.service.settings import Settings

TRIALS = 24

VIOLATIONS = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`);
});
"""


@dataclass
class Seen:
    """What pages did that nobody should see."""

    base: str
    faults: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        """Take note of errors, of requests to elsewhere, and of what the policy forbids."""
        page.add_init_script(VIOLATIONS)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("console", self._said)
        page.on("request", self._asked)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"{message.type}: {message.text}")

    def _asked(self, request: Request) -> None:
        if urlsplit(request.url).scheme[:4] == "http" and not request.url.startswith(self.base):
            self.faults.append(f"asked elsewhere: {request.url}")


@dataclass(frozen=True)
class Service:
    """A service that a page is asked of."""

    port: int
    client: httpx.Client


@pytest.fixture
def service(url: str) -> Iterator[Service]:
    """A service whose searches take some tenths of a second."""
    arguments = ("--tuner=tests.service.fakes:slow_tune", f"--prover={FAKE_PROVER}")
    with (
        serving(create_app(Settings(db=url), 1, worker_arguments=arguments)) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as client,
    ):
        yield Service(port, client)


@pytest.fixture
def seen(service: Service | ServiceProcess) -> Iterator[Seen]:
    """What went wrong in the test's pages; it must be nothing."""
    made = Seen(f"http://127.0.0.1:{service.port}")
    yield made
    assert not made.faults


@pytest.fixture
def page(browser: Browser, seen: Seen) -> Iterator[Page]:
    """A page that is watched, in a profile of its own."""
    context = browser.new_context(base_url=seen.base)
    made = context.new_page()
    seen.watch(made)
    yield made
    context.close()


@pytest.fixture
def schedule_id(tuned: int, sessions: Sessions) -> int:
    """The number of the schedule that the job of `tuned` has found."""
    with sessions() as session:
        return session.scalars(select(models.Schedule.id)).one()


@pytest.fixture
def ended(service: Service) -> int:
    """The number of a job that is done."""
    asked = {"problem": PROBLEM, "trials": TRIALS, "wait": True}
    service.client.post("/v1/jobs", json=asked, timeout=60).raise_for_status()
    return int(service.client.get("/v1/jobs").json()["jobs"][0]["id"])


def store_reports(client: httpx.Client) -> None:
    """Two reports of two suites; the numbers 3 and 4 are the newer ones."""
    told = reports("cpu:model,threads=1", ("tilewise 1", "tilewise 2"), datetime.now(UTC), 2)
    for one in told:
        client.post("/v1/suite-reports", json=one["report"]).raise_for_status()


def walk(page: Page) -> None:
    """Look at all of a page, so that each plot is drawn."""
    for figure in page.locator("[data-plot]").all():
        figure.scroll_into_view_if_needed()
        expect(figure).to_have_attribute("data-drawn", "yes", timeout=20_000)
