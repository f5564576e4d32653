"""Links of a page, as the project has them and as the site needs them."""

import os.path
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

from docs.website.places import PAGES, ROOT, place

MARKDOWN = MarkdownIt("commonmark").enable("table")
ATTRIBUTES = {"link_open": "href", "image": "src"}


@dataclass(frozen=True)
class Link:
    """A link to a file or folder of the project.

    Attributes:
        written: what stands between the parentheses.
        path: what it leads to, from the project's root.
        anchor: of the heading, with its `#`; empty for the whole page.
    """

    written: str
    path: PurePosixPath
    anchor: str


def links(text: str, page: PurePosixPath) -> list[Link]:
    """The links of a page that lead to what exists in the project, images too.

    One that leads nowhere is left out: it stays as it is, and Sphinx refuses it.
    """
    found = []
    for written in dict.fromkeys(_targets(MARKDOWN.parse(text))):
        target, mark, anchor = written.partition("#")
        if not target or ":" in target or target.startswith("/"):
            continue
        path = PurePosixPath(os.path.normpath(page.parent / unquote(target)))
        if ".." not in path.parts and (ROOT / path).exists():
            found.append(Link(written, path, mark + anchor))
    return found


def rewritten(text: str, page: PurePosixPath) -> str:
    """A page with its links as they are on the site."""
    folder = place(page).parent
    for link in links(text, page):
        there = os.path.relpath(place(link.path), folder)
        text = text.replace(f"]({link.written})", f"]({there}{link.anchor})")
    return text


def leads_out_of_pages(link: Link) -> bool:
    """Whether a link leads to what is no file of docs/."""
    return not link.path.is_relative_to(PAGES)


def _targets(tokens: list[Token]) -> Iterator[str]:
    for token in tokens:
        attribute = ATTRIBUTES.get(token.type)
        if attribute is not None:
            yield str(token.attrs[attribute])
        yield from _targets(token.children or [])
