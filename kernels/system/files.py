"""The cache folder, and safe reading and writing of files."""

import errno
import functools
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from stat import S_ISDIR, S_ISREG, S_IWGRP, S_IWOTH
from typing import IO

from tilewise.kernels.errors import CacheError


def require_cache_dir() -> Path:
    """Return the cache folder, created if necessary; raise CacheError if that is impossible."""
    folder = cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError as error:
        raise CacheError(f"TILEWISE_CACHE_DIR={folder} cannot be made: {error.strerror}") from error
    if not writable:
        raise CacheError(f"TILEWISE_CACHE_DIR={folder} cannot be written")
    return folder


def cache_dir() -> Path:
    """Return the cache folder: `TILEWISE_CACHE_DIR`, else the user's, else a temporary one."""
    named = os.environ.get("TILEWISE_CACHE_DIR")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        home = Path(base) if base else Path.home() / ".cache"
        folder = home / "tilewise"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # a user may have no home
        return _temporary()
    return folder


@functools.cache
def _temporary() -> Path:
    """Return a temporary folder that only this user can write, since its code is executed."""
    folder = Path(tempfile.gettempdir()) / f"tilewise-{os.getuid()}"
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        is_own = S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
        if is_own and not status.st_mode & (S_IWGRP | S_IWOTH):
            return folder
    return Path(tempfile.mkdtemp(prefix="tilewise-"))


def write_whole(path: Path, data: bytes) -> None:
    """Write a file atomically: concurrent readers see the old content. Raises OSError."""
    with replacing(path) as file:
        file.write(data)


@contextmanager
def replacing(
    path: Path, prefix: str = "", suffix: str = "", *, is_kept: bool = False
) -> Iterator[IO[bytes]]:
    """Yield a temporary file next to `path` that replaces it unless an error is raised.

    With `is_kept` it is synced to the disk and has the permissions of the user's other files.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=prefix, suffix=suffix)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            if is_kept:
                file.flush()
                os.fsync(file.fileno())
                mask = os.umask(0)
                os.umask(mask)
                os.fchmod(file.fileno(), 0o666 & ~mask)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


_DIGEST_BYTES = 32
_COUNT_EVERY = 64
_written = count(1)


def kept(path: Path) -> bytes | None:
    """Return what `keep` wrote to a file; None if it is absent or damaged."""
    try:
        content = read_regular(path)
    except OSError:
        return None
    digest, data = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if hashlib.sha256(data).digest() != digest:
        return None
    with suppress(OSError):
        os.utime(path)
    return data


def keep(path: Path, data: bytes, most_bytes: int) -> None:
    """Write a file of the cache folder with its hash; a full or read-only folder keeps nothing.

    The file's folder is held to about `most_bytes`: the files used longest ago go first.
    """
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, hashlib.sha256(data).digest() + data)
        if next(_written) % _COUNT_EVERY == 0:
            _drop_oldest(path.parent, most_bytes)


def _drop_oldest(folder: Path, most_bytes: int) -> None:
    found = []
    for path in folder.iterdir():
        with suppress(OSError):  # another process may drop it first
            status = path.stat()
            found.append((status.st_mtime, status.st_size, path))
    excess = sum(size for _, size, _ in found) - most_bytes
    for _, size, path in sorted(found):
        if excess <= 0:
            return
        with suppress(OSError):
            path.unlink()
        excess -= size


MOST_BYTES = 64 << 20
"""Of a script, a kernel, a lock file, or an object; the largest of those are about 1 MiB."""


def read_regular(path: Path, most: int = MOST_BYTES, *, follows_links: bool = False) -> bytes:
    """Return the content of a regular file.

    Raise OSError for anything else, a link (unless `follows_links`), or more than `most` bytes.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0)
    if not follows_links:
        flags |= getattr(os, "O_NOFOLLOW", 0)
    try:
        handle = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP and not follows_links:
            raise OSError(errno.ELOOP, "it is a link, not a regular file", str(path)) from error
        if error.errno in (errno.ENXIO, errno.ENODEV):  # a socket; a device without a driver
            raise _not_regular(path) from error
        raise
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(file.fileno())
        if S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not S_ISREG(status.st_mode):
            raise _not_regular(path)
        content = b"" if status.st_size > most else file.read(most + 1)
        if status.st_size > most or len(content) > most:
            raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
        return content


def _not_regular(path: Path) -> OSError:
    return OSError(errno.EINVAL, "it is not a regular file", str(path))
