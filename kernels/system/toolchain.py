"""Which compilers and which generator a result belongs to, as one short string.

A result of another toolchain is stale: its speed and even its correctness may differ.
Importing this module imports no compiler.
"""

import functools
import hashlib
from importlib import metadata
from pathlib import Path

import kernels

COMPILERS = ("numba", "llvmlite", "iree-base-compiler")
_GENERATORS = (
    *("native", "mlir", "schedule", "loopnest"),
    *("arithmetic.py", "channel_blocks.py", "minimal_filtering.py", "strassen.py"),
    *(f"problem/{name}.py" for name in ("base", "dtypes", "iteration", "model", "naming")),
    "target/model.py",
)
_READERS = ("mlir/frontend/", "mlir/network/", "mlir/normalised/", "native/programs/")
"""Rooms inside a generator's that read users' modules, script their ops, or join kernels to
programs: nothing is stored of what they make, and what is stored has no part of theirs."""
_SUFFIXES = (".py", ".mlir", ".ll", ".h")


@functools.cache
def identity() -> str:
    """Such as `numba 0.68.1, llvmlite 0.50.0, iree-base-compiler 3.13.0, generator 1f2e3d4c`."""
    parts = [f"{name} {_version(name)}" for name in COMPILERS]
    return ", ".join([*parts, f"generator {generator_hash()}"])


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "absent"


@functools.cache
def generator_hash() -> str:
    """First 8 hex digits of the SHA-256 over the sources that turn schedules into code."""
    root = Path(kernels.__file__).parent
    digest = hashlib.sha256()
    for name in _GENERATORS:
        for path in _sources(root / name):
            if path.relative_to(root).as_posix().startswith(_READERS):
                continue
            digest.update(str(path.relative_to(root)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def _sources(place: Path) -> list[Path]:
    """A file alone, or the modules and templates of a folder."""
    if not place.is_dir():
        return [place]
    return sorted(path for path in place.rglob("*") if path.suffix in _SUFFIXES)
