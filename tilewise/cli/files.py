"""Files that a command reads and writes; what goes wrong is one line."""

import sys
from pathlib import Path

from tilewise.errors import BadInputError, TilewiseError


def read_text(path: str) -> str:
    """The text of a file; BadInputError when it cannot be read or is no text."""
    try:
        return Path(path).read_text()
    except OSError as error:
        raise BadInputError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInputError(f"cannot read {path}: it is not text") from error


def write_text(path: str | None, text: str) -> None:
    """Write a file, or to stdout where there is no path; TilewiseError when it cannot be."""
    if path is None:
        sys.stdout.write(text)
        return
    try:
        Path(path).write_text(text)
    except OSError as error:
        raise TilewiseError(f"cannot write {path}: {error.strerror}") from error
