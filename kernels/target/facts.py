"""What a machine is besides its target, on one line: cores, caches, measured limits."""

from collections.abc import Mapping
from typing import Any

from tilewise.kernels.target.model import KIB

SHOWN_PEAKS = ("f32", "bf16", "i8")


def facts_text(machine: Mapping[str, Any]) -> str:
    """Return the facts of a machine as it is stored; those that are not known are left out.

    Args:
        machine: with `cpu`, `cores`, `caches`, `peaks` and `bandwidth_gbs`.
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
