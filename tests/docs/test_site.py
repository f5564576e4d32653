import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import pytest

from docs.website.contents import INDEX
from docs.website.places import place
from docs.website.reference import GENERATED
from docs.website.stage import project_pages
from tests.docs.commands import ROOT

LOADS = {
    "audio": "src", "embed": "src", "iframe": "src", "img": "src", "input": "src", "link": "href",
    "object": "data", "script": "src", "source": "src", "use": "href", "video": "src",
}  # fmt: skip
# Relations of <link> that load nothing.
NAMES = {"author", "canonical", "index", "next", "prev", "search"}


class Loaded(HTMLParser):
    """What a page loads by itself, and the text of its scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []
        self.code: list[str] = []
        self._is_code = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._is_code = tag in ("script", "style")
        given = dict(attrs)
        is_name = tag == "link" and set((given.get("rel") or "").split()) <= NAMES
        if tag in LOADS and given.get(LOADS[tag]) and not is_name:
            self.urls.append(given[LOADS[tag]] or "")
        if given.get("srcset"):
            self.urls += [one.split()[0] for one in (given["srcset"] or "").split(",")]
        self.code.append(given.get("style") or "")

    def handle_endtag(self, tag: str) -> None:
        self._is_code = False

    def handle_data(self, data: str) -> None:
        if self._is_code:
            self.code.append(data)


def is_external(url: str) -> bool:
    parts = urlsplit(url)
    return bool(parts.netloc) or parts.scheme not in ("", "data")


def external_in_code(text: str) -> list[str]:
    forms = r"(?:@import\s+|url\(\s*|import\(\s*|fetch\(\s*|from\s+|\.src\s*=\s*|\.open\(.{0,20})"
    return re.findall(rf"{forms}[\"']?((?:https?:)?//[^\"')\s]+)", text)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "docs.website", "-o", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def loaded(site: Path) -> Iterator[tuple[str, Loaded]]:
    for page in sorted(site.rglob("*.html")):
        parser = Loaded()
        parser.feed(page.read_text())
        yield str(page.relative_to(site)), parser


@pytest.mark.full
def test_pages_load_nothing_from_another_host(site: Path) -> None:
    count = 0
    for page, parser in loaded(site):
        count += len(parser.urls)
        assert not [url for url in parser.urls if is_external(url)], page
        assert not external_in_code("\n".join(parser.code)), page
    assert count > 500


@pytest.mark.full
def test_styles_and_scripts_load_nothing_from_another_host(site: Path) -> None:
    files = [file for kind in ("css", "js", "svg") for file in site.rglob(f"*.{kind}")]
    assert len(files) > 5
    for file in files:
        assert not external_in_code(file.read_text()), file


@pytest.mark.full
def test_what_pages_load_is_there(site: Path) -> None:
    for page, parser in loaded(site):
        for url in parser.urls:
            path = urlsplit(url).path
            if path and not url.startswith("data:"):
                assert (site / page).parent.joinpath(path).exists(), f"{page} loads {url}"


@pytest.mark.parametrize(
    "text",
    [
        '@import "https://fonts.example/a.css"', "url(//fonts.example/a.woff2)",
        'import("https://cdn.example/a.js")', "script.src = 'https://cdn.example/a.js'",
        'import a from "https://cdn.example/a.js"',
    ],
)  # fmt: skip
def test_a_load_from_elsewhere_would_be_found(text: str) -> None:
    assert external_in_code(text)
    assert not external_in_code("// see https://docs.example, url(data:image/svg+xml;utf8,x)")


def heading(text: str) -> str:
    return re.search(r"^# (.*)$", text, re.MULTILINE)[1]


@pytest.mark.full
def test_every_page_has_its_place_and_its_heading(site: Path) -> None:
    pages = {place(page): heading((ROOT / page).read_text()) for page in project_pages()}
    pages |= {PurePosixPath(name): page.title for name, page in GENERATED.items()}
    assert len(pages) > 45
    for name, title in pages.items():
        text = (site / name.with_suffix(".html")).read_text()
        shown = re.sub(r"<[^>]*>|#|¶", "", re.search(r"<h1>(.*?)</h1>", text)[1])
        assert shown == title.replace("`", ""), name


@pytest.mark.full
def test_the_menu_has_every_page(site: Path) -> None:
    menu = (site / "index.html").read_text()
    for page in project_pages():
        if "experiments" not in page.parts or page.name == "README.md":
            assert f'href="{place(page).with_suffix(".html")}"' in menu or page == INDEX, page
