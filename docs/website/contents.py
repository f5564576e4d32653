"""The site's menu, read from the index: docs/README.md lists the pages by their kind.

A page that the index does not list yet stands under its own caption, so that no page is lost.
"""

from pathlib import PurePosixPath

from markdown_it.token import Token

from docs.website.links import MARKDOWN, links
from docs.website.places import is_page, place

INDEX = PurePosixPath("docs/README.md")
UNLISTED = "More pages"
MARK = "<!-- here the site lists its generated pages -->"


def menu(index: str, pages: list[PurePosixPath], generated: dict[str, str]) -> str:
    """The hidden toctrees of the index, one for each of its headings.

    Args:
        index: text of docs/README.md.
        pages: every page of the project that the site has, from the project's root.
        generated: titles of the generated pages by their place on the site; they stand under the
            heading that has the mark.
    """
    seen = {place(INDEX)}
    parts = []
    for title, text in sections(index):
        entries = [place(link.path) for link in links(text, INDEX) if is_page(link.path)]
        entries += [PurePosixPath(name) for name in generated if MARK in text]
        new = [entry for entry in dict.fromkeys(entries) if entry not in seen]
        seen.update(new)
        parts.append(toctree(title, new))
    parts += [toctree(UNLISTED, _left_over(pages, seen))]
    return "\n".join(part for part in parts if part)


def submenu(page: PurePosixPath, pages: list[PurePosixPath]) -> str:
    """The hidden toctree of a folder's README: all other pages of the folder."""
    others = [place(other) for other in pages if other.parent == page.parent and other != page]
    return toctree("", [other.relative_to(place(page).parent) for other in others])


def toctree(caption: str, entries: list[PurePosixPath]) -> str:
    """MyST's directive; nothing where there is no entry."""
    if not entries:
        return ""
    lines = [str(entry.with_suffix("")) for entry in entries]
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["\n```{toctree}", *options, "", *lines, "```", ""])


def sections(text: str) -> list[tuple[str, str]]:
    """Title and text of each heading of the second level; what stands above them has none."""
    lines = text.splitlines(keepends=True)
    tokens = MARKDOWN.parse(text)
    begins = [
        (_inline(tokens, number), token.map[0])
        for number, token in enumerate(tokens)
        if token.type == "heading_open" and token.tag == "h2" and token.map
    ]
    ends = [line for _, line in begins[1:]] + [len(lines)]
    return [
        (title, "".join(lines[begin:end])) for (title, begin), end in zip(begins, ends, strict=True)
    ]


def _inline(tokens: list[Token], number: int) -> str:
    return tokens[number + 1].content


def _left_over(pages: list[PurePosixPath], seen: set[PurePosixPath]) -> list[PurePosixPath]:
    """Pages that neither the index lists nor the README of their folder."""
    folders = {page.parent for page in pages if page.name == "README.md" and page != INDEX}
    return [place(page) for page in pages if place(page) not in seen and page.parent not in folders]
