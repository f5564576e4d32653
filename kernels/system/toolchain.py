"""Which compilers and which generator a result belongs to, as one short string.

A result of another toolchain is stale: its speed and even its correctness may differ.
Importing this module imports no compiler.
"""

import functools
import hashlib
from importlib import metadata

from tilewise.kernels.system.children import ROOT
from tilewise.kernels.system.extensions import extension_sources
from tilewise.kernels.system.sources import sources

COMPILERS = ("numba", "llvmlite", "iree-base-compiler")


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
    """Return the first 8 hex digits of the SHA-256 over the sources, and those of extensions."""
    digest = hashlib.sha256()
    for path in sources(ROOT):
        digest.update(path.relative_to(ROOT).as_posix().encode())
        digest.update(path.read_bytes())
    for path in extension_sources():
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]
