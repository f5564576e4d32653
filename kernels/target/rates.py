"""The measured rates of instructions, kept in the cache folder between processes.

They hold for one processor and one version of LLVM, like what `tilewise.kernels.target.processor`
keeps. `tilewise.kernels.native.microbench` measures them: when a service starts, in `tilewise
doctor`, and before the first search that has a choice. Without them declared costs decide.
"""

import contextlib
import json
import math
from collections.abc import Mapping
from pathlib import Path

from tilewise.kernels.errors import CacheError
from tilewise.kernels.system.cache_folder import cache_dir, require_cache_dir, write_whole
from tilewise.kernels.target.processor import this_processor

Rates = tuple[tuple[str, float], ...]
"""GFLOP/s of one thread by the name of an instruction, sorted."""

_read: dict[tuple[Path, int], Rates] = {}


def kept_rates() -> Rates:
    """Return the rates of this machine that were measured last; none before."""
    path = _path()
    try:
        key = path, path.stat().st_mtime_ns
    except OSError:
        return ()
    if key not in _read:
        _read.clear()
        _read[key] = _parsed(path)
    return _read[key]


def keep_rates(rates: Mapping[str, float]) -> None:
    """Keep rates that were measured on this machine; where that fails, the table decides."""
    text = json.dumps({"processor": this_processor().key, "rates": dict(rates)})
    with contextlib.suppress(CacheError, OSError):
        require_cache_dir()
        write_whole(_path(), text.encode())


def _parsed(path: Path) -> Rates:
    try:
        found = json.loads(path.read_text())
        if found["processor"] != this_processor().key:
            return ()
        rates = {str(name): float(rate) for name, rate in found["rates"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return ()
    is_sound = all(math.isfinite(rate) and rate > 0 for rate in rates.values())
    return tuple(sorted(rates.items())) if is_sound else ()


def _path() -> Path:
    return cache_dir() / "instruction_rates.json"
