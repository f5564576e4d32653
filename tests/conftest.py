"""Golden files, which one flag rewrites wherever the tests lie that use them, and a browser.

No example of Hypothesis has a time limit: beside busy neighbours any of them may be slow.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NO_CLOCK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("no clock", NO_CLOCK)
settings.register_profile("fuzz", NO_CLOCK, max_examples=3000)
settings.load_profile("no clock")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with a file of the folder `golden` beside the test, or rewrite it."""

    def check(name: str, text: str) -> None:
        path = request.path.parent / "golden" / name
        if request.config.getoption("--update-golden"):
            path.write_text(text)
        assert text == path.read_text(), "if this change is meant, run with --update-golden"

    return check


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """Chromium as the system has it; its driver's event loop must be gone for other modules."""
    from tests.browser import started

    yield from started()
