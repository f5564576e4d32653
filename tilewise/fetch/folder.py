"""The folder on disk, and files that appear whole or not at all."""

import errno
import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tilewise.errors import BadInputError, TilewiseError
from tilewise.kernels.quoting import one_line
from tilewise.kernels.system import files
from tilewise.kernels.system.files import read_regular

PREFIX, SUFFIX = ".tilewise-", ".tmp"
FILLING = ".tilewise-filling"
KEPT = "fetched"
MOST_BYTES = 1 << 30  # of kept texts
DIGEST = re.compile(r"[0-9a-f]{64}")
_OF_THE_PATH = frozenset(
    (errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS,
     errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO, errno.EEXIST)
)  # fmt: skip
"""Errors of a path itself, not of its disk."""


def sha256(text: str) -> str:
    """Return the hash of a text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Folder:
    """Where fetched files are; it need not exist yet."""

    path: Path

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.absolute.name

    @property
    def absolute(self) -> Path:
        """The folder's absolute path, without `..`; a link is not followed."""
        return Path(os.path.normpath(self.path.absolute()))

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Lock the folder for this process, create it, and remove a killed process's files.

        Raises BadInputError if it cannot be created.
        """
        with file_errors("write", self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            for left in self.path.glob(f"{PREFIX}*{SUFFIX}"):
                with file_errors("write", left):
                    left.unlink(missing_ok=True)
            yield
        finally:
            os.close(handle)

    def require(self) -> None:
        """Raise BadInputError unless the folder can be written."""
        with self.taken():
            if not os.access(self.path, os.W_OK):
                raise BadInputError(f"cannot write {self.path}: {os.strerror(errno.EACCES)}")

    def digest(self, name: str) -> str | None:
        """Return the hash of a file; None if there is none.

        Raises BadInputError if it is no regular file or cannot be read.
        """
        try:
            return hashlib.sha256(read_regular(self.path / name)).hexdigest()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BadInputError(f"cannot read {self.path / name}: {error.strerror}") from error

    @property
    def is_being_filled(self) -> bool:
        """Whether a fill of the folder was interrupted."""
        return os.path.lexists(self.path / FILLING)

    def write(self, name: str, content: str | bytes, prefix: str = PREFIX) -> None:
        """Write a file atomically; `prefix` is of the temporary file's name."""
        path = self.path / name
        with (
            file_errors("write", path),
            files.replacing(path, prefix, SUFFIX, is_kept=True) as file,
        ):
            file.write(content.encode() if isinstance(content, str) else content)

    def keep(self, name: str, digest: str) -> None:
        """Copy a file to the cache folder unless it is there."""
        if kept(digest) is None:
            with suppress(OSError, UnicodeDecodeError):
                keep(read_regular(self.path / name).decode())

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        with file_errors("write", self.path / name):
            (self.path / name).unlink(missing_ok=True)


def keep(text: str) -> None:
    """Keep a text in the cache folder under its hash, for builds without a network."""
    if kept(sha256(text)) is None:
        files.keep(files.cache_dir() / KEPT / sha256(text), text.encode(), MOST_BYTES)


def kept(digest: str) -> str | None:
    """Return the text of this hash from the cache folder, if it is there and intact.

    Raises BadInputError for a text that is no hash, and so no safe name of a file.
    """
    if not DIGEST.fullmatch(digest):
        shown = one_line(digest)[:80]
        raise BadInputError(f"{shown!r} is not a SHA-256 of 64 lower-case hex digits")
    found = files.kept(files.cache_dir() / KEPT / digest)
    is_intact = found is not None and hashlib.sha256(found).hexdigest() == digest
    return found.decode() if found is not None and is_intact else None


@contextmanager
def file_errors(doing: str, path: str | Path) -> Iterator[None]:
    """Convert file system errors; those of the path itself are bad input."""
    shown = one_line(str(path)) or "''"
    try:
        yield
    except OSError as error:
        kind = BadInputError if error.errno in _OF_THE_PATH else TilewiseError
        raise kind(f"cannot {doing} {shown}: {error.strerror or error}") from error
    except ValueError as error:
        raise BadInputError(f"{shown} cannot be the name of a file") from error
