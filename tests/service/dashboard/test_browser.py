"""Pages in a browser: they work for everybody, and look like the pictures in `looks`.

`pytest tests/service/dashboard/test_browser.py -k look --update-golden` takes the pictures anew;
look at each. Machines differ in fonts and names, so pictures are compared coarsely: what moves,
goes, or changes its colour over more than a line or two is found.
"""

import io
import time
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image, ImageChops
from playwright.sync_api import expect

from tests.service.archive.stores import RANGE, add_range
from tests.service.conftest import KEY, PROBLEM
from tests.service.dashboard.conftest import TRIALS, store_reports, walk
from tests.service.dashboard.planned import store_plans
from tests.service.processes import wait_until
from tilewise.kernels.problem import parse_range

PAGES = {
    "overview": "/", "jobs": "/jobs", "job": "/jobs/1", "problem": f"/problems/{KEY}",
    "compare": "/compare?left=1&right=1", "suites": "/suites", "suite": "/suites/3",
    "submit": "/submit", "sign_in": "/sign-in", "plans": "/jobs?kind=model", "plan": "/plans/1",
    "plan_failed": "/plans/3", "plan_going": "/plans/4",
    "range": f"/problems/{parse_range(RANGE).key}",
}  # fmt: skip
"""Those of which `looks` has pictures."""
OTHERS = ("/plans/2", "/api", "/schedules/1/kernel", "/schedules/1/assembly")
SHOWN_AND_ENDED = """() => [document.querySelector("#convergence").dataset.rows,
  document.querySelector("[data-field=ended]").textContent]"""
SEEN_BY_ALL = ("minor", "moderate", "serious", "critical")

LOOKS = Path(__file__).parent / "looks"
WIDTH = 1280
CELL = 32  # pixels that are compared as one
DIFFERS = 40  # of 255, of a cell
MOST_DIFFERENT = 0.02  # of the cells

# What depends on the machine and the moment reads the same everywhere.
SAME_WORDS = """() => {
  const rules = [[/cpu:[\\w-]+/g, "cpu:model"], [/,\\s*features[= ][\\w+:.-]+/g, ""],
    [/[\\d.]+ (s|min|h|days?)\\b( \\d+ min)?( ago)?/g, "1 s"],
    [/numba .*|toolchain .*/g, "toolchain"], [/, fits L\\d/g, ""],
    [/on [\\w.-]+$/g, "on host"]];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    for (const [from, to] of rules) {
      const text = walker.currentNode.textContent.replace(from, to);
      if (text !== walker.currentNode.textContent) walker.currentNode.textContent = text;
    }
  }
  document.querySelectorAll("#live-machines li").forEach((one) => { one.textContent = "host"; });
}"""


@pytest.fixture
def opened(browser, service, sessions, ended, seen):
    """Opens a page of a service that has something of everything."""
    store_reports(service.client)
    store_plans(sessions)
    add_range(sessions)
    contexts = []

    def make(scheme, width):
        size = {"width": width, "height": 900}
        contexts.append(browser.new_context(base_url=seen.base, color_scheme=scheme, viewport=size))
        page = contexts[-1].new_page()
        seen.watch(page)
        return page

    yield make
    for context in contexts:
        context.close()


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 1920)])
def test_every_page_works_for_everybody(opened, scheme, width):
    page = opened(scheme, width)
    for path in (*PAGES.values(), *OTHERS)[:: 1 if scheme == "light" else 2]:
        page.goto(path)
        walk(page)
        assert page.evaluate("window.violations") == []
        # Tables and code scroll by themselves; the page is never wider than the screen.
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        found = Axe().run(page)
        faults = [one for one in found.response["violations"] if one["impact"] in SEEN_BY_ALL]
        assert not faults, (path, [(one["id"], one["nodes"][0]["html"]) for one in faults])


@pytest.mark.full
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_look_as_they_did(opened, request, scheme):
    page = opened(scheme, WIDTH)
    LOOKS.mkdir(exist_ok=True)
    for name, path in PAGES.items():
        page.goto(path)
        walk(page)
        page.evaluate(SAME_WORDS)
        taken = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
        kept = LOOKS / f"{name}-{scheme}.png"
        if request.config.getoption("--update-golden"):
            taken.quantize(96).save(kept, optimize=True)
        known = Image.open(kept).convert("RGB")
        assert abs(known.height - taken.height) <= 2 * CELL, name
        assert differing(known, taken) <= MOST_DIFFERENT, name


def differing(known, taken):
    height = min(known.height, taken.height)
    cells = (WIDTH // CELL, height // CELL)
    small = [one.crop((0, 0, WIDTH, height)).resize(cells, Image.Resampling.BOX)
             for one in (known, taken)]  # fmt: skip
    apart = ImageChops.difference(*small).convert("L").tobytes()
    return sum(value > DIFFERS for value in apart) / len(apart)


def test_a_search_is_seen_as_it_runs(page, service):
    page.goto("/")
    expect(page.get_by_text("Nothing runs.")).to_be_visible()
    asked = service.client.post("/v1/jobs", json={"problem": PROBLEM, "trials": TRIALS})
    job = asked.json()["id"]
    row = page.locator(f'#live-jobs [data-row="{job}"]')
    expect(row).to_contain_text(PROBLEM)
    row.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Job {job}")
    wait_until(lambda: int(page.locator("[data-field=ended]").inner_text()) >= 5)
    walk(page)
    wait_until(lambda: page.locator("#trial-rows tbody tr").count() >= 8)
    numbers = page.locator("#trial-rows tbody td:first-child")
    shown = numbers.all_inner_texts()
    assert shown == [str(number) for number in range(len(shown))]
    # The end loads the page anew; every trial is there once.
    expect(page.locator("[data-field=state]")).to_have_text("done", timeout=60_000)
    expect(page.locator("#trial-rows tbody tr")).to_have_count(TRIALS)
    assert numbers.all_inner_texts() == [str(number) for number in range(TRIALS)]


@pytest.mark.full
def test_a_live_plot_has_the_trials_that_came_while_it_was_drawn(page, service):
    page.route("**/vega.js", lambda route: time.sleep(1.5) or route.continue_())
    asked = service.client.post("/v1/jobs", json={"problem": PROBLEM, "trials": 500})
    page.goto(f"/jobs/{asked.json()['id']}")
    expect(page.locator("#convergence")).to_have_attribute("data-drawn", "yes", timeout=20_000)
    wait_until(lambda: int(page.locator("[data-field=ended]").inner_text()) >= 10)
    shown, ended = page.evaluate(SHOWN_AND_ENDED)
    assert int(shown) == int(ended)


def test_the_keyboard_alone_submits_and_cancels(page, service):
    page.goto("/submit")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "problem"
    page.keyboard.type("matmul:m=0,n=48,k=32,dtype=f32")
    expect(page.locator("#problem-description")).to_contain_text("m=0")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type(PROBLEM)
    expect(page.locator("#problem-description")).to_contain_text("flops per byte")
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
