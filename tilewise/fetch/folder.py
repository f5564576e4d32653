"""The folder on disk: what is in it, and files that appear whole or not at all."""

import errno
import fcntl
import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

from tilewise.errors import BadInputError, TilewiseError
from tilewise.kernels.errors import CacheError
from tilewise.kernels.quoting import one_line
from tilewise.kernels.system.files import read_regular, require_cache_dir

PREFIX, SUFFIX = ".tilewise-", ".tmp"
FILLING = ".tilewise-filling"
KEPT = "fetched"
DIGEST = re.compile(r"[0-9a-f]{64}")


def sha256(text: str) -> str:
    """Of the text in UTF-8, hex."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Folder:
    """Where fetched files lie.

    Attributes:
        path: of the folder; it need not be there yet.
    """

    path: Path

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.path.absolute().name

    @contextmanager
    def taken(self) -> Iterator[None]:
        """The folder, made if need be, to this process alone, and without what a kill has left.

        Raises:
            BadInputError: there can be no such folder.
        """
        with _told(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            for left in self.path.glob(f"{PREFIX}*{SUFFIX}"):
                with _told(left):
                    left.unlink(missing_ok=True)
            yield
        finally:
            os.close(handle)

    def require(self) -> None:
        """Refuse a path that cannot be written to as a folder, before work is spent on it.

        Raises:
            BadInputError: there can be no such folder, or its files cannot be written.
        """
        with self.taken():
            if not os.access(self.path, os.W_OK):
                raise BadInputError(f"cannot write {self.path}: {os.strerror(errno.EACCES)}")

    def digest(self, name: str) -> str | None:
        """SHA-256 of a file, hex; None where there is none.

        Raises:
            BadInputError: there is a link, a device or the like, or it cannot be read.
        """
        try:
            return hashlib.sha256(read_regular(self.path / name)).hexdigest()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BadInputError(f"cannot read {self.path / name}: {error.strerror}") from error

    @property
    def is_being_filled(self) -> bool:
        """Whether a fill of the folder was broken off."""
        return os.path.lexists(self.path / FILLING)

    def begin_fill(self) -> None:
        """Mark the folder, until `end_fill`, as one whose files are on their way."""
        self.write(FILLING, "")

    def end_fill(self) -> None:
        """Take the mark away."""
        self.remove(FILLING)

    def write(self, name: str, content: str | bytes) -> None:
        """Put a file in place, whole."""
        write_whole(self.path / name, content)

    def write_beside(self, path: Path, text: str) -> None:
        """Put a file of another folder in place, whole; what a kill leaves of it lies here.

        On another filesystem it lies there.
        """
        is_near = self.path.stat().st_dev == path.parent.stat().st_dev
        write_whole(path, text, self.path if is_near else None)

    def keep(self, name: str, digest: str) -> None:
        """Keep a file's text in the cache folder, unless that has it."""
        if not is_kept(digest):
            with suppress(OSError, UnicodeDecodeError):
                keep(read_regular(self.path / name).decode())

    def remove(self, name: str) -> None:
        """Take a file away."""
        with _told(self.path / name):
            (self.path / name).unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes, scratch: Path | None = None) -> None:
    """Put a file in place of what was there; whoever reads meanwhile sees the one or the other.

    Args:
        path: of the file.
        content: what goes there; a text in UTF-8.
        scratch: a folder of the same filesystem for the unfinished file; None is the file's own.

    Raises:
        BadInputError, TilewiseError: it cannot be written.
    """
    with _told(path):
        place = scratch or path.parent
        handle, name = tempfile.mkstemp(dir=place, prefix=PREFIX, suffix=SUFFIX)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(0o666 & ~_umask())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def keep(text: str) -> None:
    """Keep a text in the cache folder under its SHA-256, for builds without a network."""
    with suppress(CacheError, OSError, TilewiseError):
        folder = require_cache_dir() / KEPT
        folder.mkdir(exist_ok=True)
        path = folder / sha256(text)
        if kept(path.name) is None:
            write_whole(path, text)


def is_kept(digest: str) -> bool:
    """Whether the cache folder has a text of this SHA-256."""
    try:
        return S_ISREG((require_cache_dir() / KEPT / required_digest(digest)).lstat().st_mode)
    except (CacheError, OSError):
        return False


def kept(digest: str) -> str | None:
    """The text of this SHA-256 from the cache folder, if it is there and whole."""
    try:
        text = read_regular(require_cache_dir() / KEPT / required_digest(digest)).decode()
    except (CacheError, OSError, UnicodeDecodeError):
        return None
    return text if sha256(text) == digest else None


def required_digest(text: str) -> str:
    """Return a SHA-256 in hex, which is safe as the name of a file.

    Raises:
        BadInputError: the text is something else, such as a path.
    """
    if not DIGEST.fullmatch(text):
        raise BadInputError(f"{one_line(text)[:80]!r} is no SHA-256 of 64 lower-case hex digits")
    return text


def _umask() -> int:
    """What a new file's rights lack; a temporary file has less than those of others."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, FileExistsError, PermissionError) as error:
        raise BadInputError(f"cannot write {path}: {error.strerror}") from error
    except OSError as error:
        raise TilewiseError(f"cannot write {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise BadInputError(f"{str(path)!r} cannot be the name of a file") from error
