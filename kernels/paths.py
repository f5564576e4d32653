"""Where generated code is kept between processes."""

import os
import tempfile
from pathlib import Path


def cache_dir() -> Path:
    """The cache folder: `TILEWISE_CACHE_DIR`, else the user's, else a temporary one."""
    named = os.environ.get("TILEWISE_CACHE_DIR")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    home = Path(base) if base else Path.home() / ".cache"
    folder = home / "tilewise"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.gettempdir()) / "tilewise"
    return folder
