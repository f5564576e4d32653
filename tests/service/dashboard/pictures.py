"""Pictures of pages for the docs."""

from pathlib import Path

from playwright.sync_api import Page

IMAGES = Path(__file__).parents[3] / "docs" / "images"


class Pictures:
    """Pictures of a page as it is on the screen, for the docs."""

    def __init__(self, page: Page, *, is_kept: bool) -> None:
        self._page = page
        self._is_kept = is_kept

    def take(self, name: str) -> None:
        """Take one; it is written where that was asked for, and has to be there else."""
        file = IMAGES / f"{name}.png"
        taken = self._page.screenshot()
        if self._is_kept:
            file.write_bytes(taken)
        assert file.is_file() and taken.startswith(b"\x89PNG")
