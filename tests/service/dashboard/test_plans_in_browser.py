"""A plan in the browser, from its first job to its nodes."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.service.api.plans.modules import MODULE, TEXT
from tests.service.processes import ServiceProcess, wait_until


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
    link = page.get_by_role("link", name="Download the runner")
    with page.expect_download() as waiting:
        link.click()
    served = service.client.get(str(link.get_attribute("href"))).content
    assert waiting.value.path().read_bytes() == served
    page.get_by_role("table").first.get_by_role("link").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("conv2d:n=1,h=10,w=9")
