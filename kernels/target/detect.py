"""What this machine is: LLVM's view of the processor, and the kernel's view of its caches."""

import functools
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tilewise.kernels.target.model import (
    KIB,
    Target,
    check_processor,
    check_threads,
    parse_target,
)
from tilewise.kernels.target.processor import this_processor
from tilewise.kernels.target.rates import Rates, kept_rates

CACHE_ROOT = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": KIB, "M": KIB * KIB, "G": KIB**3}


def resolve(text: str) -> Target:
    """The target that `text` names, if this machine can serve it.

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
    here = this_processor()
    features = frozenset(here.features)
    vector_bytes, registers = vector_unit(features)
    caches = _cache_sizes()
    return Target(
        cpu=here.name,
        features=features,
        vector_bytes=vector_bytes,
        vector_registers=registers,
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


def vector_unit(features: frozenset[str]) -> tuple[int, int]:
    """Register width in bytes and register count that a feature set gives."""
    if "avx512f" in features:
        return 64, 32
    if "avx2" in features:
        return 32, 16
    if features & {"neon", "fp-armv8"}:
        return 16, 32
    return 16, 16


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
