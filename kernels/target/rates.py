"""The measured rates of instructions, kept in the cache folder between processes.

They hold for one processor and one version of LLVM, like what `tilewise.kernels.target.processor`
keeps. `tilewise.kernels.native.microbench` measures them: when a service starts, in `tilewise
doctor`, and before the first search that has a choice. Without them the table of cores decides.
"""

import contextlib
import json
import math
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tilewise.kernels.errors import CacheError
from tilewise.kernels.system.cache_folder import cache_dir, require_cache_dir, write_whole
from tilewise.kernels.system.children import child_command, child_environment
from tilewise.kernels.target.instructions import lacks_rates
from tilewise.kernels.target.model import Target
from tilewise.kernels.target.processor import this_processor

Rates = tuple[tuple[str, float], ...]
"""GFLOP/s of one thread by the name of an instruction, sorted."""

LIMIT_S = 60.0

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


def with_rates(target: Target, dtype: str) -> Target:
    """Return a target with rates for a type, measured in a child if this machine has none yet.

    The target of another processor, or of other features, stays as it is, and so does one whose
    measurement fails; the table of cores decides then.
    """
    here = this_processor()
    is_here = target.cpu == here.name and target.features == frozenset(here.features)
    if not is_here or not lacks_rates(dtype, target):
        return target
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(
            child_command("tilewise.kernels.native.microbench"),
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT_S,
            check=True,
        )
    return replace(target, rates=kept_rates())


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
