"""Chromium as the system has it, for tests that look at pages."""

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
REQUIRED = "TILEWISE_TEST_BROWSER"  # a missing browser fails where this is set, as in CI


def started() -> Iterator[Browser]:
    """A browser; without one the test is skipped in one line, or fails where one is required."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        why = f"no browser: none of {', '.join(NAMES)} is installed; `make browser` installs one"
        if os.environ.get(REQUIRED):
            pytest.fail(why)
        pytest.skip(why)
    with sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield made
        made.close()
