"""Files that a command reads and writes; every error is one line."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EACCES
from pathlib import Path
from stat import S_ISCHR, S_ISDIR, S_ISREG

from tilewise.errors import BadInputError
from tilewise.fetch.folder import file_errors
from tilewise.kernels.quoting import one_line
from tilewise.kernels.system.files import read_regular


def read_text(path: str) -> str:
    """Read a text file without its byte order mark; raise BadInputError if that fails."""
    require_file(path)
    with _readable(path):
        return Path(path).read_text(encoding="utf-8-sig")


def read_regular_text(path: str) -> str:
    """Read a regular file, which may be behind a link, as `read_text` does."""
    with _readable(path):
        return read_regular(Path(path), follows_links=True).decode("utf-8-sig")


def read_module_bytes(path: str) -> bytes:
    """Read a file, or stdin for `-`; raise BadInputError if that fails."""
    if path == "-":
        return sys.stdin.buffer.read()
    require_file(path)
    with _readable(path):
        return Path(path).read_bytes()


def begins_with(path: str, magic: bytes) -> bool:
    """Return whether a regular file begins so; raise BadInputError if it cannot be read."""
    if path == "-" or not require_file(path):
        return False
    with _readable(path), Path(path).open("rb") as file:
        return file.read(len(magic)) == magic


def require_file(path: str) -> bool:
    """Return whether a file is regular; raise BadInputError for what cannot be read to an end."""
    with _readable(path):
        mode = Path(path or "no/file").stat().st_mode  # a Path of "" is the working folder
    if S_ISCHR(mode):
        raise BadInputError(f"cannot read {_shown(path)}: it is a device, not a file")
    return S_ISREG(mode)


@contextmanager
def _readable(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadInputError(f"cannot read {_shown(path)}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInputError(f"cannot read {_shown(path)}: it is not text") from error
    except ValueError as error:
        raise BadInputError(f"{_shown(path)} cannot be the name of a file") from error


def write_text(path: str | None, text: str) -> None:
    """Write a file, or to stdout without a path.

    Raises BadInputError for an impossible path, TilewiseError if writing fails.
    """
    if path is None:
        sys.stdout.write(text)
        return
    with file_errors("write", path):
        Path(path).write_text(text, encoding="utf-8")


def write_bytes(path: str, data: bytes) -> None:
    """Write a file as `write_text` does."""
    with file_errors("write", path):
        Path(path).write_bytes(data)


def require_folder(path: str | None) -> None:
    """Raise BadInputError for a file that cannot be written, before an hour is spent on it."""
    if path is None:
        return
    is_folder = False
    with file_errors("write", path), suppress(FileNotFoundError, NotADirectoryError):
        is_folder = S_ISDIR(Path(path).stat().st_mode)
    if is_folder:
        raise BadInputError(f"cannot write {_shown(path)}: it is a folder")
    folder = Path(path).parent
    if not folder.is_dir():
        raise BadInputError(
            f"cannot write {_shown(path)}: there is no folder {_shown(str(folder))}"
        )
    with file_errors("write", path):
        _require_writable(Path(path) if Path(path).exists() else folder)


def json_text(value: object) -> str:
    """Format a value as commands print it with `--json`; numbers that are not finite are null."""
    finite = json.loads(json.dumps(value), parse_constant=lambda _: None)
    return json.dumps(finite, indent=2) + "\n"


def make_folder(path: str) -> Path:
    """Create a folder if needed; raise BadInputError if that fails."""
    folder = Path(path)
    with file_errors("make the folder", path):
        folder.mkdir(parents=True, exist_ok=True)
        _require_writable(folder)
    return folder


def _require_writable(path: Path) -> None:
    if not os.access(path, os.W_OK):
        raise PermissionError(EACCES, os.strerror(EACCES), str(path))


def _shown(path: str) -> str:
    return one_line(path) or "''"
