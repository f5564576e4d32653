"""Printed drivers into compiled functions, kept in the cache folder between processes."""

import functools
import hashlib
import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kernels.paths import cache_dir
from kernels.toolchain import generator_hash

Driver = Callable[[int], None]


@dataclass(frozen=True)
class Drivers:
    """Compiled functions, each of the address of a driver's parameters.

    Attributes:
        run: the driver.
        prepare: what packs constant weights before it, if any.
        entry: the driver's address, for threads; 0 unless the nest is parallel.
    """

    run: Driver
    prepare: Driver | None
    entry: int = 0


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
    entry = getattr(module, "entry", None)
    return Drivers(module.driver, getattr(module, "prepare", None), entry.address if entry else 0)


def _write_atomically(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    draft.write_text(text)
    draft.replace(path)
