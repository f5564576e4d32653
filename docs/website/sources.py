"""Pages that show a file or a folder of the project, for links that lead out of docs/."""

from pathlib import Path, PurePosixPath

from docs.website.places import ROOT, is_shown_as_text

# Others are shown as text: Pygments has no MLIR, and stumbles over CMake's generator expressions.
LEXERS = {".py": "python", ".yml": "yaml", ".yaml": "yaml", ".json": "json", ".sql": "psql",
          ".toml": "toml", ".sh": "bash"}  # fmt: skip
LONGEST = 100_000  # characters
ORPHAN = "---\norphan: true\n---\n\n"


def source_page(path: PurePosixPath) -> str:
    """A page with the text of a file, or of each file of a folder."""
    here = ROOT / path
    if not here.is_dir():
        return f"{ORPHAN}# {path}\n\n{_listing(here)}"
    files = [file for file in sorted(here.rglob("*")) if _is_text(file)]
    parts = [f"## {file.relative_to(here)}\n\n{_listing(file)}" for file in files]
    return f"{ORPHAN}# {path}\n\n" + "\n".join(parts)


def _is_text(file: Path) -> bool:
    return (
        file.is_file()
        and "__pycache__" not in file.parts
        and is_shown_as_text(PurePosixPath(file.relative_to(ROOT)))
    )


def _listing(file: Path) -> str:
    text = file.read_text()
    if len(text) > LONGEST:
        return f"{len(text)} characters, not shown here.\n"
    lexer = LEXERS.get(file.suffix, "text")
    fence = "`" * 8
    return f"{fence}{lexer}\n{text.rstrip()}\n{fence}\n"
