"""This machine: its processor by LLVM, its caches by the kernel, the measured rates.

Loading LLVM takes longer than all else that looking up a stored schedule does. What it says of the
processor is therefore kept in the cache folder, for one version of llvmlite and one processor as
the system describes it; where that is not known LLVM is loaded each time. The rates of instructions
hold for the same. `tilewise.kernels.native.microbench` measures them: when a service starts, in
`tilewise doctor`, and before the first search that has a choice. Without them declared costs
decide.
"""

import contextlib
import functools
import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from tilewise.kernels.errors import CacheError
from tilewise.kernels.system.files import cache_dir, read_regular, require_cache_dir, write_whole
from tilewise.kernels.system.typed_json import from_json, to_json
from tilewise.kernels.target.features import vector_unit
from tilewise.kernels.target.model import KIB, Target, check_processor, check_threads, parse_target
from tilewise.kernels.target.tile_data import may_use_tiles

CPUINFO = Path("/proc/cpuinfo")
CACHE_ROOT = Path("/sys/devices/system/cpu/cpu0/cache")
AMX = "amx-"
SHOWN_PEAKS = ("f32", "bf16", "i8")
_IDENTIFYING = ("vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags",
                "CPU implementer", "CPU variant", "CPU part", "CPU revision",
                "Features")  # fmt: skip
_UNITS = {"K": KIB, "M": KIB * KIB, "G": KIB**3}

Rates = tuple[tuple[str, float], ...]
"""GFLOP/s of one thread by the name of an instruction, sorted."""


@dataclass(frozen=True)
class Processor:
    """A processor by LLVM's names.

    Attributes:
        key: identifies the processor and the version of llvmlite; empty where it is not known.
        name: such as `znver5`.
        features: the instruction-set extensions present.
    """

    key: str
    name: str
    features: tuple[str, ...]


def resolve(text: str) -> Target:
    """Return the target that `text` names, if this machine can serve it.

    Raises:
        TargetError: malformed, another processor or other features, or more threads than it has
            for us.
    """
    wanted, here = parse_target(text), detect()
    check_processor(text, wanted, here.named)
    check_threads(text, wanted.threads, here.cores)
    return replace(here, threads=wanted.threads, kind=wanted.kind)


def detect() -> Target:
    """Return this machine as a one-thread target, with the rates that were measured on it."""
    return _with_rates(kept_rates())


@functools.lru_cache(maxsize=2)
def _with_rates(rates: Rates) -> Target:
    return replace(_detected(), rates=rates)


@functools.cache
def _detected() -> Target:
    here, caches = this_processor(), _cache_sizes()
    has_tiles = any(name.startswith(AMX) for name in here.features) and may_use_tiles()
    features = [name for name in here.features if has_tiles or not name.startswith(AMX)]
    return replace(
        described(here.name, features),
        l1_bytes=caches.get(1, 32 * KIB),
        l2_bytes=caches.get(2, 256 * KIB),
        l3_bytes=caches.get(3, 0),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1,
    )


def described(cpu: str, features: Iterable[str]) -> Target:
    """Return the one-thread target of a processor that is known by its name and its features."""
    known = frozenset(features)
    vector_bytes, registers = vector_unit(known)
    return Target(cpu, features=known, vector_bytes=vector_bytes, vector_registers=registers)


def _cache_sizes() -> dict[int, int]:
    """Bytes of each data or unified cache level, from sysfs; empty where there is none."""
    sizes: dict[int, int] = {}
    for index in sorted(CACHE_ROOT.glob("index*")):
        try:
            if (index / "type").read_text().strip() == "Instruction":
                continue
            level = int((index / "level").read_text())
            text = (index / "size").read_text().strip()
            sizes[level] = int(text.rstrip("KMG")) * _UNITS.get(text[-1], 1)
        except (OSError, ValueError):
            continue
    return sizes


def this_processor() -> Processor:
    """Return the processor that this process runs on."""
    key = _processor_key()
    kept = _kept_processor(key) if key else None
    if kept is not None:
        return kept
    import llvmlite.binding as llvm

    features = sorted(name for name, on in llvm.get_host_cpu_features().items() if on)
    found = Processor(key, llvm.get_host_cpu_name(), tuple(features))
    if key:
        with contextlib.suppress(CacheError, OSError):
            write_whole(_processor_path(), json.dumps(to_json(found)).encode())
    return found


def _processor_key() -> str:
    try:
        first = CPUINFO.read_text().partition("\n\n")[0]
        version = metadata.version("llvmlite")
    except (OSError, UnicodeDecodeError, metadata.PackageNotFoundError):
        return ""
    lines = [line for line in first.splitlines() if line.partition(":")[0].strip() in _IDENTIFYING]
    return hashlib.sha256("\n".join([version, *lines]).encode()).hexdigest() if lines else ""


def _processor_path() -> Path:
    return require_cache_dir() / "processor.json"


def _kept_processor(key: str) -> Processor | None:
    try:
        found = from_json(Processor, json.loads(read_regular(_processor_path())))
    except (CacheError, OSError, ValueError):
        return None
    return found if found.key == key and found.name else None


_read: dict[tuple[Path, int], Rates] = {}


def kept_rates() -> Rates:
    """Return the rates of this machine that were measured last; empty before."""
    path = _rates_path()
    try:
        key = path, path.stat().st_mtime_ns
    except OSError:
        return ()
    if key not in _read:
        _read.clear()
        _read[key] = _parsed_rates(path)
    return _read[key]


def keep_rates(rates: Mapping[str, float]) -> None:
    """Keep rates that were measured on this machine; where that fails, the table decides."""
    text = json.dumps({"processor": this_processor().key, "rates": dict(rates)})
    with contextlib.suppress(CacheError, OSError):
        require_cache_dir()
        write_whole(_rates_path(), text.encode())


def _rates_path() -> Path:
    return cache_dir() / "instruction_rates.json"


def _parsed_rates(path: Path) -> Rates:
    try:
        found = json.loads(path.read_text())
        if found["processor"] != this_processor().key:
            return ()
        rates = {str(name): float(rate) for name, rate in found["rates"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return ()
    is_sound = all(math.isfinite(rate) and rate > 0 for rate in rates.values())
    return tuple(sorted(rates.items())) if is_sound else ()


def facts_text(machine: Mapping[str, Any]) -> str:
    """Return the facts of a machine as it is stored, on one line: cores, caches, measured limits.

    Args:
        machine: with `cpu`, `cores`, `caches`, `peaks` and `bandwidth_gbs`; what is not known is
            left out.
    """
    cores = machine.get("cores")
    caches, peaks = machine.get("caches") or {}, machine.get("peaks") or {}
    parts = [str(machine["cpu"]), *([f"{cores} core{'s' * (cores != 1)}"] if cores else [])]
    parts += [f"{name.upper()} {_size(size)}" for name, size in sorted(caches.items()) if size]
    measured = [f"{name} {peaks[name]:.0f} GFLOP/s" for name in SHOWN_PEAKS if name in peaks]
    if machine.get("bandwidth_gbs"):
        measured.append(f"memory {machine['bandwidth_gbs']:.0f} GB/s")
    return ", ".join(parts) + (f"; one thread: {', '.join(measured)}" if measured else "")


def _size(size: int) -> str:
    mib = KIB * KIB
    return f"{size / mib:.0f} MiB" if size >= mib else f"{size / KIB:.0f} KiB"
