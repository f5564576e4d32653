"""A real search in the browser, from its first trial to the schedule; the docs have its pictures.

`--update-golden` writes the pictures of docs/dashboard.md; look at each.
"""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.service.dashboard.conftest import Seen, store_reports, walk
from tests.service.dashboard.pictures import Pictures
from tests.service.processes import ServiceProcess, wait_until
from tilewise.service.workers.entry_points import PROVER, TUNER

PROBLEM = "matmul:m=128,n=512,k=256,dtype=f32"
TRIALS = 40
COUNTS = "['#found', '[data-field=ended]'].map((one) => document.querySelector(one).textContent)"
# Labels that have no room reach the canvas's edge, which is blank around a whole plot.
CLIPPED = """() => [...document.querySelectorAll("[data-plot] canvas")].filter((one) => {
  const { data } = one.getContext("2d").getImageData(0, 0, 2, one.height);
  return data.some((value, index) => value !== data[index % 4]);
}).length"""
SIZE = {"width": 1100, "height": 1180}


@pytest.fixture
def service(url: str) -> Iterator[ServiceProcess]:
    process = ServiceProcess(url, TUNER, prover=PROVER)
    yield process
    process.stop()


@pytest.mark.full
def test_a_search_is_seen_from_its_first_trial_to_its_script(
    browser: Browser, service: ServiceProcess, seen: Seen, request: pytest.FixtureRequest
) -> None:
    context = browser.new_context(base_url=seen.base, viewport=SIZE)
    page = context.new_page()
    seen.watch(page)
    pictures = Pictures(page, is_kept=request.config.getoption("--update-golden"))
    asked = {"problem": PROBLEM, "trials": TRIALS, "peers": True}
    job = service.client.post("/v1/jobs", json=asked).json()["id"]
    page.goto(f"/jobs/{job}")
    walk(page)
    wait_until(lambda: int(page.locator("[data-field=ended]").inner_text()) >= TRIALS // 2, 120)
    expect(page.locator("[data-field=origins]")).to_contain_text("prior")
    expect(page.locator("[data-field=elapsed]")).not_to_have_text("0.0 s")
    counts = page.evaluate(COUNTS)
    assert counts[0] == counts[1]
    assert page.evaluate(CLIPPED) == 0
    pictures.take("job")
    expect(page.locator("[data-field=state]")).to_have_text("done", timeout=180_000)
    walk(page)
    page.get_by_role("link", name=PROBLEM).click()
    walk(page)
    expect(page.locator("main")).to_contain_text("micro-kernel")
    expect(page.locator("main")).to_contain_text(re.compile(r"Proven of schedule .*applied, run"))
    expect(page.locator("pre").last).to_contain_text("transform.structured")
    pictures.take("problem")
    page.get_by_role("link", name="its inner loop").click()
    expect(page.locator("pre").last).to_contain_text(re.compile(r"fma|mul"))
    store_reports(service.client)
    page.goto("/suites/3")
    walk(page)
    pictures.take("suite")
    context.close()
