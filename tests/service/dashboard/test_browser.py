import time

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect

from tests.service.archive.stores import RANGE, add_range
from tests.service.conftest import PROBLEM
from tests.service.dashboard.conftest import TRIALS, Seen, Service, store_reports, walk
from tests.service.dashboard.planned import store_plans
from tests.service.processes import wait_until
from tilewise.kernels.problem import parse_range
from tilewise.service.db import Sessions

LOOKS = [("light", 1920), ("dark", 1280), ("light", 390)]
SHOWN_AND_ENDED = """() => [document.querySelector("#convergence").dataset.rows,
  document.querySelector("[data-field=ended]").textContent]"""
SEEN_BY_ALL = ("minor", "moderate", "serious", "critical")


def pages(service: Service) -> list[str]:
    key = service.client.get("/v1/schedules", params={"problem": PROBLEM}).json()["key"]
    return ["/", "/jobs", "/jobs/1", f"/problems/{key}", "/compare?left=1&right=1", "/submit",
            "/jobs?kind=model", "/plans/1", "/plans/2", "/plans/3", "/suites", "/suites/3",
            "/sign-in", "/api", "/schedules/1/kernel", "/schedules/1/assembly",
            f"/problems/{parse_range(RANGE).key}"]  # fmt: skip


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("scheme", "width"),
    [("dark", 390), *(pytest.param(*one, marks=pytest.mark.full) for one in LOOKS)],
)
def test_every_page_works_for_everybody(
    browser: Browser, service: Service, sessions: Sessions, ended: int, seen: Seen,
    scheme: str, width: int,
) -> None:  # fmt: skip
    store_reports(service.client)
    store_plans(sessions)
    add_range(sessions)
    context = browser.new_context(
        base_url=seen.base, color_scheme=scheme, viewport={"width": width, "height": 900}
    )
    page = context.new_page()
    seen.watch(page)
    for path in pages(service):
        page.goto(path)
        walk(page)
        assert page.evaluate("window.violations") == []
        # Tables and code scroll by themselves; the page is never wider than the screen.
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        found = Axe().run(page)
        faults = [one for one in found.response["violations"] if one["impact"] in SEEN_BY_ALL]
        assert not faults, (path, [(one["id"], one["nodes"][0]["html"]) for one in faults])
    context.close()


def test_a_search_is_seen_as_it_runs(page: Page, service: Service) -> None:
    page.goto("/")
    expect(page.get_by_text("Nothing runs.")).to_be_visible()
    asked = service.client.post("/v1/jobs", json={"problem": PROBLEM, "trials": TRIALS})
    job = asked.json()["id"]
    row = page.locator(f'#live-jobs [data-row="{job}"]')
    expect(row).to_contain_text(PROBLEM)
    row.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Job {job}")
    wait_until(lambda: int(page.locator("[data-field=ended]").inner_text()) >= 5)
    # The end loads the page anew; every trial is there once.
    expect(page.locator("[data-field=state]")).to_have_text("done", timeout=60_000)
    expect(page.locator("#trial-rows tbody tr")).to_have_count(TRIALS)
    numbers = page.locator("#trial-rows tbody td:first-child").all_inner_texts()
    assert numbers == [str(number) for number in range(TRIALS)]


@pytest.mark.full
def test_a_live_table_has_every_trial_once(page: Page, service: Service) -> None:
    asked = service.client.post("/v1/jobs", json={"problem": PROBLEM, "trials": TRIALS})
    page.goto(f"/jobs/{asked.json()['id']}")
    walk(page)
    wait_until(lambda: page.locator("#trial-rows tbody tr").count() >= 8)
    numbers = page.locator("#trial-rows tbody td:first-child").all_inner_texts()
    assert numbers == [str(number) for number in range(len(numbers))]


def test_a_live_plot_has_the_trials_that_came_while_it_was_drawn(
    page: Page, service: Service
) -> None:
    slow_s = 1.5

    def late(route: Route) -> None:
        time.sleep(slow_s)
        route.continue_()

    page.route("**/vega.js", late)
    asked = service.client.post("/v1/jobs", json={"problem": PROBLEM, "trials": 500})
    page.goto(f"/jobs/{asked.json()['id']}")
    plot = page.locator("#convergence")
    expect(plot).to_have_attribute("data-drawn", "yes", timeout=20_000)
    wait_until(lambda: int(page.locator("[data-field=ended]").inner_text()) >= 10)
    shown, ended = page.evaluate(SHOWN_AND_ENDED)
    assert int(shown) == int(ended)


def test_the_keyboard_alone_submits_and_cancels(page: Page, service: Service) -> None:
    page.goto("/submit")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "problem"
    page.keyboard.type("matmul:m=0,n=48,k=32,dtype=f32")
    expect(page.locator("#problem-told")).to_contain_text("m=0")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type(PROBLEM)
    expect(page.locator("#problem-told")).to_contain_text("flops per byte")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("500")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/*")
    button = page.get_by_role("button", name="Cancel the job")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.locator("[data-field=state]")).to_have_text("cancelled")
    assert service.client.get("/v1/jobs").json()["jobs"][0]["state"] == "cancelled"


def test_downloads_are_what_the_api_serves(page: Page, service: Service, ended: int) -> None:
    page.goto(f"/jobs/{ended}")
    page.get_by_role("link", name=PROBLEM).click()
    link = page.get_by_role("link", name="Download the script")
    with page.expect_download() as waiting:
        link.click()
    served = service.client.get(str(link.get_attribute("href"))).content
    assert waiting.value.path().read_bytes() == served
    assert waiting.value.suggested_filename.endswith(".mlir")


@pytest.mark.full
def test_no_page_may_frame_this_one(page: Page, service: Service, seen: Seen) -> None:
    answer = page.goto("/")
    assert answer is not None and "frame-ancestors 'none'" in answer.headers[
        "content-security-policy"
    ]  # fmt: skip
    page.goto("about:blank")
    page.set_content(f'<iframe src="{seen.base}/"></iframe>')
    page.wait_for_timeout(500)
    assert all("Overview" not in frame.content() for frame in page.frames[1:])
    seen.faults.clear()  # the browser says that it has refused
