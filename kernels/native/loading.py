"""Printed drivers into compiled functions, kept in the cache folder between processes."""

import functools
import hashlib
import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.paths import cache_dir
from kernels.toolchain import generator_hash

Driver = Callable[[Any], None]


@dataclass(frozen=True)
class Drivers:
    """Compiled functions: the driver, and what packs constant weights before it, if any."""

    run: Driver
    prepare: Driver | None


@functools.lru_cache(maxsize=64)
def load_driver(text: str) -> Drivers:
    """Compile a driver's source, or load it from the cache folder.

    The file's name carries the generator's hash: Numba's own cache does not notice
    when a module that the driver uses has changed.
    """
    name = "driver_" + hashlib.sha256((generator_hash() + text).encode()).hexdigest()[:20]
    path = cache_dir() / "drivers" / f"{name}.py"
    if not path.exists():
        _write_atomically(path, text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Numba stores and finds a cached function by the name of an importable module.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return Drivers(module.driver, getattr(module, "prepare", None))


def _write_atomically(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    draft.write_text(text)
    draft.replace(path)
