"""Where generated code is kept between processes."""

import os
import tempfile
from pathlib import Path

from kernels.errors import CacheError


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
        return Path(tempfile.gettempdir()) / "tilewise"
    return folder


def write_whole(path: Path, data: bytes) -> None:
    """Put a file there, whole or not at all; whoever reads meanwhile sees what was there before.

    Raises:
        OSError: it cannot be written.
    """
    handle, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    Path(name).replace(path)
