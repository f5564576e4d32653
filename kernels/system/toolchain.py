"""The compilers and the generator that a result belongs to, as one short string.

Results of another toolchain are stale: speed and even correctness may differ. Importing this module
imports no compiler.
"""

import functools
import hashlib
import os
import re
from collections.abc import Container
from importlib import metadata
from pathlib import Path

from tilewise.kernels.system.children import ROOT
from tilewise.kernels.system.extensions import extension_sources

COMPILERS = ("numba", "llvmlite", "iree-base-compiler")


@functools.cache
def identity() -> str:
    """Return `numba 0.68.1, llvmlite 0.50.0, iree-base-compiler 3.13.0, generator 1f2e3d4c`."""
    parts = [f"{name} {_version(name)}" for name in COMPILERS]
    return ", ".join([*parts, f"generator {generator_hash()}"])


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "absent"


@functools.cache
def generator_hash() -> str:
    """Return the first 8 hex digits of the SHA-256 over the sources and those of extensions."""
    digest = hashlib.sha256()
    for path in sources(ROOT):
        digest.update(path.relative_to(ROOT).as_posix().encode())
        digest.update(path.read_bytes())
    for path in extension_sources():
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


ENTRIES = (
    "tilewise.kernels.native",
    "tilewise.kernels.native.conversion",
    "tilewise.kernels.native.export.module",
    "tilewise.kernels.native.microbench",
    "tilewise.kernels.native.objects.document",
    "tilewise.kernels.native.passes.passes",
    "tilewise.kernels.native.passes.rows.emit",
    "tilewise.kernels.mlir.air.prove",
    "tilewise.kernels.mlir.cpu.script",
    "tilewise.kernels.mlir.proof.prove",
    "tilewise.kernels.mlir.tuning_spec.prove",
    "tilewise.search.runner.child.session",
)
"""Modules that make kernels and scripts, measure peaks, or judge results, of which some is stored.

What only reads or scripts users' modules (`tilewise.kernels.mlir.frontend`, `network`,
`op_scripts`) is not among what they import: nothing is stored of it.
"""
FOLLOWED = ("tilewise.kernels", "tilewise.search.runner.child")
"""Packages whose modules count; how a search chooses and times changes no kernel."""
NEUTRAL = ("tilewise.kernels.errors", "tilewise.kernels.quoting", "tilewise.kernels.system")
"""What words messages, starts processes and finds folders, and with it this file."""

TEMPLATES = ("mlir", "ll", "h", "tmpl")
_NAMES = (r"tilewise\.kernels[\w.]*", r"tilewise\.search\.runner\.child[\w.]*")
_FROM = [re.compile(rf"from ({name}) import (\([^)]*\)|[^\n]*)") for name in _NAMES]
_PLAIN = [re.compile(rf"import ({name})") for name in _NAMES]
_QUOTED = [re.compile(rf"\"({name})\"") for name in _NAMES]  # their fixed beginnings are found fast
_WORD = re.compile(r"\w+")


def sources(root: Path) -> list[Path]:
    """Return the relevant files below `root`, sorted; raise LookupError if an entry is missing."""
    modules, templates = _files(root)
    waiting, found = list(ENTRIES), dict[str, str]()
    if gone := [entry for entry in ENTRIES if entry not in modules]:
        raise LookupError(f"{', '.join(gone)} not below {root}; correct ENTRIES of {__name__}")
    while waiting:
        module = waiting.pop()
        if module not in found:
            found[module] = modules[module]
            waiting += _imported(Path(modules[module]).read_text(), modules)
    folders = {_parent(path) for path in found.values()}
    texts = (path for folder in folders for path in templates.get(folder, ()))
    return [Path(path) for path in sorted({*found.values(), *texts})]


def _files(root: Path) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the modules that count by name, and templates by the folder of the nearest modules."""
    modules: dict[str, str] = {}
    templates: dict[str, list[str]] = {}
    for package in FOLLOWED:
        nearest: dict[str, str] = {}
        for folder, _, files in os.walk(root.joinpath(*package.split("."))):
            name = os.path.relpath(folder, root).replace(os.sep, ".")
            is_package = "__init__.py" in files
            nearest[folder] = folder if is_package else nearest.get(_parent(folder), folder)
            for file in files:
                stem, _, suffix = file.rpartition(".")
                if suffix == "py" and is_package:
                    module = name if stem == "__init__" else f"{name}.{stem}"
                    modules[module] = f"{folder}{os.sep}{file}"
                elif suffix in TEMPLATES:
                    templates.setdefault(nearest[folder], []).append(f"{folder}{os.sep}{file}")
    return {name: path for name, path in modules.items() if not _is_neutral(name)}, templates


def _parent(path: str) -> str:
    return path.rpartition(os.sep)[0]


def _imported(text: str, modules: Container[str]) -> set[str]:
    """Return the `modules` that a file may import; of `from a import b`, both `a` and `a.b`."""
    named = [(m[1], _WORD.findall(m[2])) for form in _FROM for m in form.finditer(text)]
    named += [(m[1], []) for form in (*_PLAIN, *_QUOTED) for m in form.finditer(text)]
    found = {f"{module}.{name}" for module, names in named for name in names}
    for module in {module for module, _ in named}:
        parts = module.split(".")
        found |= {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
    return {name for name in found if name in modules}


def _is_neutral(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in NEUTRAL)
