"""Where generated code is kept between processes."""

import functools
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR, S_IWGRP, S_IWOTH

from tilewise.kernels.errors import CacheError


def require_cache_dir() -> Path:
    """The cache folder, made if need be.

    Raises:
        CacheError: it cannot be made or written.
    """
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
    """The cache folder: `TILEWISE_CACHE_DIR`, else the user's, else a temporary one."""
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
    """Return a folder of this user alone, where every user may make folders.

    What others could write there, this user would run.
    """
    folder = Path(tempfile.gettempdir()) / f"tilewise-{os.getuid()}"
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        is_own = S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
        if is_own and not status.st_mode & (S_IWGRP | S_IWOTH):
            return folder
    return Path(tempfile.mkdtemp(prefix="tilewise-"))


def write_whole(path: Path, data: bytes) -> None:
    """Put a file there, whole or not at all; whoever reads meanwhile sees what was there before.

    Raises:
        OSError: it cannot be written.
    """
    handle, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    Path(name).replace(path)
