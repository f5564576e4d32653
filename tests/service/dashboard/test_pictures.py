"""A search and a plan in the browser, from the first trial to the result; the docs have pictures.

`--update-golden` writes the pictures of docs/dashboard.md; look at each.
"""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.service.api.plans.test_http_plans import MODULE, TEXT
from tests.service.dashboard.conftest import store_reports, walk
from tests.service.processes import FAKE_PROVER, ServiceProcess, wait_until
from tilewise.service.workers.entry_points import PROVER, TUNER

IMAGES = Path(__file__).parents[3] / "docs" / "images"
PLANS = "tests.service.fakes:direct_tune", FAKE_PROVER
"""A search whose schedules are real ones, without timing."""
PROBLEM = "matmul:m=128,n=512,k=256,dtype=f32"
TRIALS = 40
COUNTS = "['#found', '[data-field=ended]'].map((one) => document.querySelector(one).textContent)"
# Labels that have no room reach the canvas's edge, which is blank around a whole plot.
CLIPPED = """() => [...document.querySelectorAll("[data-plot] canvas")].filter((one) => {
  const { data } = one.getContext("2d").getImageData(0, 0, 2, one.height);
  return data.some((value, index) => value !== data[index % 4]);
}).length"""


@pytest.fixture
def service(url, request):
    """A service in a process of its own, with the search and the prover of the test."""
    tuner, prover = request.param
    process = ServiceProcess(url, tuner, prover=prover)
    yield process
    process.stop()


@pytest.fixture
def take(page, request):
    """Takes a picture of the page as it is on the screen, which has to be in the docs."""

    def make(name):
        file = IMAGES / f"{name}.png"
        taken = page.screenshot()
        if request.config.getoption("--update-golden"):
            file.write_bytes(taken)
        assert file.is_file() and taken.startswith(b"\x89PNG")

    return make


@pytest.mark.full
@pytest.mark.parametrize("service", [(TUNER, PROVER)], indirect=True)
def test_a_search_is_seen_from_its_first_trial_to_its_script(page, service, take):
    page.set_viewport_size({"width": 1100, "height": 1180})
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
    take("job")
    expect(page.locator("[data-field=state]")).to_have_text("done", timeout=180_000)
    walk(page)
    page.get_by_role("link", name=PROBLEM).click()
    walk(page)
    expect(page.locator("main")).to_contain_text("micro-kernel")
    expect(page.locator("main")).to_contain_text(re.compile(r"Proven of schedule .*applied, run"))
    expect(page.locator("pre").last).to_contain_text("transform.structured")
    take("problem")
    page.get_by_role("link", name="its inner loop").click()
    expect(page.locator("pre").last).to_contain_text(re.compile(r"fma|mul"))
    store_reports(service.client)
    page.goto("/suites/3")
    walk(page)
    take("suite")


@pytest.mark.full
@pytest.mark.parametrize("service", [PLANS], indirect=True)
def test_a_plan_is_seen_as_it_is_made(page, service):
    page.goto("/plans")
    expect(page.locator("main")).to_contain_text("No model was planned")
    query = "trials=2&layouts=model&name=small.mlir"

    def is_asked():
        answer = service.client.post(f"/v1/plans?{query}", content=MODULE, headers=TEXT)
        return "id" in answer.raise_for_status().json()  # else the module is still being read

    wait_until(is_asked, 60)
    page.goto("/plans")
    page.get_by_role("link", name="1", exact=True).click()
    # The end loads the page anew, without anybody's doing.
    expect(page.locator("[data-field=state]")).to_have_text("done", timeout=120_000)
    expect(page.get_by_role("heading", name="Before and after")).to_be_visible()
    link = page.get_by_role("link", name="Download the runner")
    with page.expect_download() as waiting:
        link.click()
    served = service.client.get(str(link.get_attribute("href"))).content
    assert waiting.value.path().read_bytes() == served
    page.get_by_role("table").first.get_by_role("link").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("conv2d:n=1,h=10,w=9")
