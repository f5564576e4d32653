import re
import subprocess
import sys
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import pytest

from docs.website.places import place
from docs.website.reference import GENERATED
from docs.website.stage import project_pages
from tests.docs.commands import ROOT

# Attributes by which a page loads something, but for relations of <link> that load nothing.
LOADS = re.compile(
    r"<(?:audio|embed|iframe|img|input|object|script|source|use|video)\b[^>]*?"
    r"\s(?:src|srcset|data|href)=\"([^\"]+)\""
    r"|<link\b(?![^>]*rel=\"(?:author|canonical|index|next|prev|search)\")[^>]*?\shref=\"([^\"]+)\""
)
IN_CODE = re.compile(
    r"(?:@import\s+|url\(\s*|import\(\s*|fetch\(\s*|from\s+|\.src\s*=\s*|\.open\(.{0,20})"
    r"[\"']?((?:https?:)?//[^\"')\s]+)"
)
CODE = re.compile(r"<(script|style)\b[^>]*>(.*?)</\1>|\sstyle=\"([^\"]*)\"", re.DOTALL)


def is_external(url: str) -> bool:
    parts = urlsplit(url)
    return bool(parts.netloc) or parts.scheme not in ("", "data")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "docs.website", "-o", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.full
def test_pages_load_what_is_there_and_nothing_from_another_host(site: Path) -> None:
    count = 0
    for page in sorted(site.rglob("*.html")):
        text = page.read_text()
        urls = ["".join(found) for found in LOADS.findall(text)]
        count += len(urls)
        assert not [url for url in urls if is_external(url)], page
        code = "\n".join("".join(found[1:]) for found in CODE.findall(text))
        assert not IN_CODE.findall(code), page
        for url in urls:
            path = urlsplit(url).path
            if path and not url.startswith("data:"):
                assert page.parent.joinpath(path).exists(), f"{page} loads {url}"
    assert count > 500


@pytest.mark.full
def test_styles_and_scripts_load_nothing_from_another_host(site: Path) -> None:
    files = [file for kind in ("css", "js", "svg") for file in site.rglob(f"*.{kind}")]
    assert len(files) > 5
    for file in files:
        assert not IN_CODE.findall(file.read_text()), file


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
