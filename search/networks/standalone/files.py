"""The files of a standalone network."""

import ctypes
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import ModuleType
from typing import Any

from numpy.typing import NDArray

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.mlir.frontend.read import read_program
from tilewise.kernels.native.export.templates import filled
from tilewise.kernels.native.language import shared_words
from tilewise.kernels.native.objects.object_files import archive
from tilewise.kernels.native.programs.compile import (
    CompiledProgram,
    compiled_program,
    shared_library,
)
from tilewise.kernels.native.programs.steps import NetworkProgram
from tilewise.kernels.native.threads import pinning, pool
from tilewise.kernels.system.toolchain import identity
from tilewise.search.errors import NetworkError
from tilewise.search.networks.loader import network as loader
from tilewise.search.networks.lowering.network import LoweredNetwork
from tilewise.search.networks.plan import Plan

_PREFIX = "tilewise_network_"
_LONGEST, _DIGITS = 40, 8  # characters of a model's name, and of a hash, in a symbol
_TEMPLATES = Path(__file__).with_name("templates")
_MOVED = (pool, "pool.py"), (pinning, "pinning.py"), (shared_words, "shared_words.py")
"""Modules of ours that become some of the folder's, and their names there."""


def lowered(plan: Plan, module: bytes) -> LoweredNetwork:
    """Lower a plan of a module, given as text or bytecode.

    Raises ModuleError for an unreadable module or missing weights, NetworkError for another module
    or machine, or an unsupported op.
    """
    return LoweredNetwork(plan, read_program(module))


def files_of(network: LoweredNetwork, module: bytes) -> dict[str, bytes]:
    """Return the files of a Python package that needs NumPy alone: `load().run(*arrays)`.

    Raises NetworkError if a part cannot be compiled.
    """
    program = program_of(network, module)
    code, library = _compiled(program)
    held = {"network.so": library, "weights.bin": network.weights.tobytes()}
    about = _about(network, program, code, held)
    return {
        "__init__.py": _source(loader),
        **{name: _source(module) for module, name in _MOVED},
        "network.json": _json(about),
        "plan.json": _json(network.plan.to_json()),
        "network.h": _header(about).encode(),
        "libnetwork.a": archive(code.objects),
        **held,
    }


def load_here(network: LoweredNetwork, module: bytes) -> loader.Network:
    """Load a network into this process without a folder; raise as `files_of`."""
    program = program_of(network, module)
    code, library = _compiled(program)
    return _loaded(_about(network, program, code, {}), library, network.weights)


def load_steps(program: NetworkProgram, weights: NDArray[Any]) -> loader.Network:
    """Load a program without arguments and results; raise NetworkError if it cannot be compiled."""
    whole = {"label": program.name, "node": None, "end": len(program.steps)}
    about = {**_sizes(program), "inputs": [], "results": [], "parts": [whole]}
    return _loaded(about, _compiled(program)[1], weights)


def _compiled(program: NetworkProgram) -> tuple[CompiledProgram, bytes]:
    """Return the code of a program, and its shared library."""
    try:
        code = compiled_program(program)
        return code, shared_library(code)
    except KernelsError as error:
        raise NetworkError(str(error)) from error


def _loaded(about: dict[str, Any], library: bytes, weights: NDArray[Any]) -> loader.Network:
    with NamedTemporaryFile(suffix=".so") as file:
        file.write(library)
        file.flush()
        return loader.Network(about, ctypes.CDLL(file.name), weights)


def program_of(network: LoweredNetwork, module: bytes) -> NetworkProgram:
    """Return the program of a network in terms of its two memories."""
    return NetworkProgram(
        _name(network.plan, module), network.target, network.steps, network.placed.size
    )


def _name(plan: Plan, module: bytes) -> str:
    """Return the prefix of the symbols.

    It differs by target and accuracy, so that several may be linked into one program.
    """
    stem = "".join(c if c.isascii() and c.isalnum() else "_" for c in Path(plan.model).stem)
    of = f"{plan.model}\n{plan.target}\n".encode() + module
    if plan.accuracy != "standard":
        of += plan.accuracy.encode()
    return f"{_PREFIX}{stem[:_LONGEST]}_{hashlib.sha256(of).hexdigest()[:_DIGITS]}"


def _about(
    network: LoweredNetwork, program: NetworkProgram, code: CompiledProgram,
    held: Mapping[str, bytes],
) -> dict[str, Any]:  # fmt: skip
    return {
        "schema": loader.SCHEMA,
        "model": network.plan.model,
        "target": network.plan.target,
        "accuracy": network.plan.accuracy,
        "toolchain": identity(),
        "features": list(code.features),
        **_sizes(program),
        "weights_bytes": len(network.weights),
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in held.items()},
        "inputs": list(map(asdict, network.inputs)),
        "results": list(map(asdict, network.results)),
        "parts": list(map(asdict, network.parts)),
        "halos": network.halos,
    }


def _sizes(program: NetworkProgram) -> dict[str, Any]:
    return {
        "name": program.name,
        "threads": program.threads,
        "activations_bytes": program.activations_bytes,
        "barrier": program.barrier.offset,
    }


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


def _source(module: ModuleType) -> bytes:
    """Return the source of a module for the folder."""
    text = Path(str(module.__file__)).read_text(encoding="utf-8")
    for ours, name in _MOVED:
        text = text.replace(f"from {ours.__name__} import", f"from .{Path(name).stem} import")
    return text.encode()


def _header(about: dict[str, Any]) -> str:
    macro = about["name"].upper()
    arrays = "".join(
        f"#define {macro}_{kind}_{number}_OFFSET {one['offset']} "
        f"/* {one['dtype']} {'x'.join(map(str, one['shape']))} */\n"
        for kind, held in (("INPUT", about["inputs"]), ("RESULT", about["results"]))
        for number, one in enumerate(held)
    )
    threads = filled(_TEMPLATES / "threads.h", name=about["name"]) if about["threads"] > 1 else ""
    return filled(
        _TEMPLATES / "network.h", name=about["name"], macro=macro, arrays=arrays, threads=threads,
        model=_of_comment(about["model"]), target=about["target"], accuracy=about["accuracy"],
        features=", ".join(about["features"]) or "nothing beyond its first",
        activations=about["activations_bytes"], weights=about["weights_bytes"],
        parts=about["threads"],
    )  # fmt: skip


def _of_comment(text: str) -> str:
    """Return a name that is safe in a C comment."""
    return "".join(c if c.isprintable() and c not in "*\\" else "?" for c in text)
