"""A plan in the browser, from its first job to its graph; the docs have its picture.

`--update-golden` writes the picture of docs/plan.md; look at it.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.service.api.plans.modules import MODULE, TEXT
from tests.service.dashboard.conftest import Seen
from tests.service.dashboard.pictures import Pictures
from tests.service.dashboard.planned import store_plan
from tests.service.processes import ServiceProcess, wait_until
from tilewise.kernels.system.toolchain import identity
from tilewise.search.networks.plan import Plan
from tilewise.service.db import Sessions

STORED = Path(__file__).parent / "plans" / "inverted_residuals.json"
# What `tilewise script MODEL.mlir --packs` says of the same model.
PROOF = {"max_error": 0.0, "tolerance": 2.1e-4, "mlir": "iree-base-compiler 3.13.0",
         "packs": 1, "unpacks": 1, "reshapes": 1, "weights": 32}  # fmt: skip
SIZE = {"width": 1100, "height": 1500}


@pytest.fixture
def service(url: str) -> Iterator[ServiceProcess]:
    process = ServiceProcess(url, "tests.service.api.plans.tuners:tune")
    yield process
    process.stop()


@pytest.mark.full
def test_a_plan_is_seen_as_it_is_made(page: Page, service: ServiceProcess) -> None:
    page.goto("/plans")
    expect(page.locator("main")).to_contain_text("No model was planned")
    query = "trials=2&layouts=model&name=small.mlir"

    def is_asked() -> bool:
        answer = service.client.post(f"/v1/plans?{query}", content=MODULE, headers=TEXT)
        return "id" in answer.raise_for_status().json()  # else the module is still being read

    wait_until(is_asked, 60)
    page.goto("/plans")
    page.get_by_role("link", name="1", exact=True).click()
    # The end loads the page anew, without anybody's doing.
    expect(page.locator("[data-field=state]")).to_have_text("done", timeout=120_000)
    expect(page.get_by_role("heading", name="Before and after")).to_be_visible()
    assert page.locator(".net-layer").count() == 2
    link = page.get_by_role("link", name="Download the runner")
    with page.expect_download() as waiting:
        link.click()
    served = service.client.get(str(link.get_attribute("href"))).content
    assert waiting.value.path().read_bytes() == served
    # The keyboard finds a layer in the graph, and what computes it.
    page.locator(".net-view").focus()
    page.keyboard.press("Tab")
    name = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert name.startswith("node ") and "conv2d 3x3" in name
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("conv2d:n=1,h=10,w=9")


def test_a_long_node_is_found_in_the_graph(
    context: BrowserContext, seen: Seen, sessions: Sessions, request: pytest.FixtureRequest
) -> None:
    page = context.new_page()
    page.set_viewport_size(SIZE)
    seen.watch(page)
    plan = Plan.from_json(json.loads(STORED.read_text()))
    store_plan(sessions, plan, identity(), trials=6, proof=PROOF)
    page.goto("/plans/1")
    Pictures(page, is_kept=request.config.getoption("--update-golden")).take("plan")
    last = max(i for i, node in enumerate(plan.nodes) if node.schedule)
    box = page.locator(f"#node-{last}")
    expect(box).not_to_be_in_viewport()
    page.get_by_role("table").first.get_by_role("link", name=str(last), exact=True).click()
    expect(box).to_be_in_viewport()
