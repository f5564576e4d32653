"""Where each file of the project stands on the site.

Pages of docs/ keep their paths, so that most links need no change. A link that leads out of docs/
leads to a page of its own: a code host shows such a file, and the site must as well.
"""

from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
PAGES = PurePosixPath("docs")

RENAMED = {
    "README.md": "overview.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "docs/README.md": "index.md",
    "docs/search.md": "searches.md",  # Sphinx has a page of its own at search.html
    "kernels/steps": "reference/steps.md",
}
SHOWN_AS_TEXT = frozenset({
    "", ".cfg", ".cmake", ".csv", ".ini", ".json", ".md", ".mlir", ".py", ".sh", ".sql", ".toml",
    ".txt", ".yaml", ".yml",
})  # fmt: skip


def is_page(path: PurePosixPath) -> bool:
    """Whether a file of the project is prose that the site renders."""
    inside = path.is_relative_to(PAGES) and path.suffix == ".md"
    return inside or (str(path) in RENAMED and path.suffix == ".md")


def is_shown_as_text(path: PurePosixPath) -> bool:
    """Whether the site shows a file on a page, as a code host would; else it offers the file."""
    return (ROOT / path).is_dir() or path.suffix in SHOWN_AS_TEXT


def place(path: PurePosixPath) -> PurePosixPath:
    """The path on the site of a file or folder of the project, both from their roots."""
    if str(path) in RENAMED:
        return PurePosixPath(RENAMED[str(path)])
    if path.is_relative_to(PAGES):
        inside = path.relative_to(PAGES)
        return inside / "README.md" if (ROOT / path).is_dir() else inside
    shown = PurePosixPath("source") / path
    return shown.with_name(shown.name + ".md") if is_shown_as_text(path) else shown
