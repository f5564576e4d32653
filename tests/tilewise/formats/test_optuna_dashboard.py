import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.service.processes import wait_until
from tests.tilewise.conftest import PROBLEM, Cli
from tilewise.kernels.system.children import child_environment

OPEN = """
import sys
from optuna_dashboard import run_server
run_server(sys.argv[1], port=int(sys.argv[2]))
"""


def answers(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.TransportError:
        return False


@pytest.fixture
def opened(cli: Cli, tuned: str, tmp_path: Path) -> Iterator[str]:
    """The address of optuna-dashboard over an exported study."""
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    assert cli("export-study", PROBLEM, "--storage", storage).code == 0
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-c", OPEN, storage, str(port)], env=child_environment(),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}/dashboard"
    wait_until(lambda: answers(url))
    yield url
    process.kill()
    process.wait()


@pytest.mark.full
def test_its_plots_show_the_trials(browser: Browser, opened: str) -> None:
    page = browser.new_page(viewport={"width": 1400, "height": 1400})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{opened}/studies/1")
    expect(page.get_by_role("heading", name="History")).to_be_visible(timeout=20_000)
    plots = page.locator(".js-plotly-plot")
    expect(plots.nth(2)).to_be_visible(timeout=20_000)
    expect(page.locator(".js-plotly-plot .scatterlayer .point").first).to_be_attached()
    assert PROBLEM in page.inner_text("body")
    assert not errors
    page.close()
