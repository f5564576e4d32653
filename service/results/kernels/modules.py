"""The kernel of a stored result as a Python module, printed once in a child process and kept.

Printing one takes numba, which the service must not carry in its memory. The text depends
on the result and the toolchain alone, so an entity tag names it before it is printed, and
the file that keeps it.
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tilewise.kernels.errors import CacheError
from tilewise.kernels.system.files import read_regular, require_cache_dir, write_whole
from tilewise.service.results.child import answer_of

MOST_KEPT = 1000  # modules, of about 50 kB
_PARTS = ("problem", "target", "toolchain", "best")


def kernel_source(result: dict[str, Any], target: str) -> str:
    """What a module depends on, as canonical JSON.

    Args:
        result: the contract's result object.
        target: canonical; of the module, whatever target the schedule was found on.
    """
    return json.dumps({part: result[part] for part in _PARTS} | {"target": target}, sort_keys=True)


def kernel_tag(source: str, toolchain: str) -> str:
    """A strong entity tag of the module that the present toolchain prints of `source`."""
    return hashlib.sha256(f"{toolchain}\n{source}".encode()).hexdigest()


def kernel_module(tag: str, source: str, printed: Callable[[str], str] | None = None) -> str:
    """The module that `tag` names, printed now, which takes a second, and kept.

    It is called in a flight of `Services.kernels`.

    Args:
        tag: the name.
        source: what `kernel_source` gives.
        printed: what makes another text of the source, if it is to be one.

    Raises:
        ConflictError: this machine or this toolchain cannot print it.
    """
    folder = _folder_if_any()
    text = (printed or _print)(source)
    if folder is not None:
        with suppress(OSError):  # without the file it is printed again
            _write(folder / tag, text)
    return text


def _print(source: str) -> str:
    return answer_of("tilewise.kernels.native.export", "the kernel", source)


def _folder() -> Path:
    """Where modules are kept; made if need be."""
    folder = require_cache_dir() / "modules"
    folder.mkdir(exist_ok=True)
    return folder


def _folder_if_any() -> Path | None:
    try:
        return _folder()
    except (CacheError, OSError):
        return None


def kept_module(tag: str) -> str | None:
    """The module that `tag` names, if it is kept and not damaged."""
    try:
        digest, _, text = read_regular(_folder() / tag).decode().partition("\n")
    except (CacheError, OSError, UnicodeDecodeError):
        return None
    return text if digest == _digest(text) else None


def _write(path: Path, text: str) -> None:
    """Keep a module, whole or not at all; the oldest beyond `MOST_KEPT` go."""
    write_whole(path, f"{_digest(text)}\n{text}".encode())
    kept = sorted(path.parent.iterdir(), key=lambda path: path.stat().st_mtime)
    for old in kept[:-MOST_KEPT]:
        old.unlink(missing_ok=True)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
