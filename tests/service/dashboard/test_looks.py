"""How pages look, beside pictures of them that were looked at.

`pytest tests/service/dashboard/test_looks.py --update-golden` takes them anew; look at each.
Machines differ in fonts and names, so pictures are compared coarsely: what moves, goes, or turns
another colour over more than a line or two is found.
"""

import io
from pathlib import Path

import pytest
from PIL import Image, ImageChops
from playwright.sync_api import Browser

from tests.service.archive.stores import RANGE, add_range
from tests.service.conftest import PROBLEM
from tests.service.dashboard.conftest import Seen, Service, store_reports, walk
from tests.service.dashboard.planned import store_plans
from tilewise.kernels.problem import parse_range
from tilewise.service.db import Sessions

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


def pages(service: Service) -> dict[str, str]:
    key = service.client.get("/v1/schedules", params={"problem": PROBLEM}).json()["key"]
    return {
        "overview": "/", "jobs": "/jobs", "job": "/jobs/1", "problem": f"/problems/{key}",
        "compare": "/compare?left=1&right=1", "suites": "/suites", "suite": "/suites/3",
        "submit": "/submit", "sign_in": "/sign-in", "plans": "/jobs?kind=model", "plan": "/plans/1",
        "plan_failed": "/plans/3", "plan_going": "/plans/4",
        "range": f"/problems/{parse_range(RANGE).key}",
    }  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_look_as_they_did(
    browser: Browser, service: Service, sessions: Sessions, ended: int, seen: Seen,
    scheme: str, request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    context = browser.new_context(
        base_url=seen.base, color_scheme=scheme, viewport={"width": WIDTH, "height": 900}
    )
    page = context.new_page()
    seen.watch(page)
    LOOKS.mkdir(exist_ok=True)
    store_reports(service.client)
    store_plans(sessions)
    add_range(sessions)
    for name, path in pages(service).items():
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
    context.close()


def differing(known: Image.Image, taken: Image.Image) -> float:
    height = min(known.height, taken.height)
    cells = (WIDTH // CELL, height // CELL)
    small = [one.crop((0, 0, WIDTH, height)).resize(cells, Image.Resampling.BOX)
             for one in (known, taken)]  # fmt: skip
    apart = ImageChops.difference(*small).convert("L").tobytes()
    return sum(value > DIFFERS for value in apart) / len(apart)
