"""A folder of sources as Sphinx wants them: pages, pictures, files that pages link to, reference.

The folder has every page at its place on the site, with links that are right there. Nothing of
docs/ is changed.
"""

import shutil
from pathlib import Path, PurePosixPath

from docs.website.contents import INDEX, MARK, menu, submenu
from docs.website.links import leads_out_of_pages, links, rewritten
from docs.website.places import PAGES, RENAMED, ROOT, is_page, is_shown_as_text, place
from docs.website.reference import GENERATED
from docs.website.sources import source_page

PICTURES = (".svg", ".png")


def stage(folder: Path) -> None:
    """Write the sources of the site into `folder`, which is made."""
    pages = project_pages()
    linked: set[PurePosixPath] = set()
    for page in pages:
        text = (ROOT / page).read_text()
        linked |= {link.path for link in links(text, page) if leads_out_of_pages(link)}
        shown = rewritten(text, page).replace(MARK, _list_of_generated())
        _write(folder / place(page), shown + _contents(page, text, pages))
    for name, generated in GENERATED.items():
        _write(folder / name, generated.text())
    _copy(folder, PurePosixPath("docs/openapi.json"))
    for path in sorted(linked - {PurePosixPath(renamed) for renamed in RENAMED}):
        _show(folder, path)
    for picture in sorted(file for file in (ROOT / PAGES).rglob("*") if file.suffix in PICTURES):
        _copy(folder, PurePosixPath(picture.relative_to(ROOT)))


def project_pages() -> list[PurePosixPath]:
    """Every page of the project that the site has, from the project's root."""
    inside = sorted((ROOT / PAGES).rglob("*.md"))
    outside = [ROOT / name for name in RENAMED]
    found = [PurePosixPath(page.relative_to(ROOT)) for page in [*outside, *inside]]
    return [page for page in dict.fromkeys(found) if is_page(page)]


def _contents(page: PurePosixPath, text: str, pages: list[PurePosixPath]) -> str:
    if page == INDEX:
        return menu(text, pages, {name: page.title for name, page in GENERATED.items()})
    is_of_folder = page.name == "README.md" and page.is_relative_to(PAGES)
    return submenu(page, pages) if is_of_folder else ""


def _list_of_generated() -> str:
    rows = [f"| [{page.title}]({name}) | {page.answers} |" for name, page in GENERATED.items()]
    return "\n".join(["| page | answers |", "|---|---|", *rows])


def _show(folder: Path, path: PurePosixPath) -> None:
    if is_shown_as_text(path):
        _write(folder / place(path), source_page(path))
    else:
        _copy(folder, path)


def _copy(folder: Path, path: PurePosixPath) -> None:
    target = folder / place(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / path, target)


def _write(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
