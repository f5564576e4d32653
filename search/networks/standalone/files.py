"""The files of a standalone network."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from numpy.typing import NDArray

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.native.export.templates import filled
from tilewise.kernels.native.objects.object_files import archive
from tilewise.kernels.native.programs.compile import (
    CompiledProgram,
    compiled_program,
    shared_library,
)
from tilewise.kernels.native.programs.steps import NetworkProgram
from tilewise.kernels.native.threads import pinning
from tilewise.kernels.system.toolchain import identity
from tilewise.search.errors import NetworkError
from tilewise.search.networks.plan import Plan
from tilewise.search.networks.running.network import Network
from tilewise.search.networks.standalone import crew, runner

RUNNER_SCHEMA = runner.SCHEMA
_PREFIX = "tilewise_network_"
_LONGEST, _DIGITS = 40, 8  # characters of a model's name, and of a hash, in a symbol
_TEMPLATES = Path(__file__).with_name("templates")
_MOVED = (pinning.__name__, ".pinning"), (crew.__name__, ".crew")
"""Modules of ours that become some of the folder's, and their names there."""


def runner_files(plan: Plan, module: bytes) -> dict[str, bytes]:
    """Return the files of a Python package that needs NumPy alone: `load().run(*arrays)`.

    Raises ModuleError for an unreadable module or missing weights, NetworkError for another module
    or machine, or a part that cannot be exported.
    """
    return files_of(Network.load(plan, module), module)


def files_of(network: Network, module: bytes) -> dict[str, bytes]:
    """Return the files of a loaded network; raise as `runner_files`."""
    program = program_of(network, module)
    try:
        code = compiled_program(program)
        library = shared_library(code)
    except KernelsError as error:
        raise NetworkError(f"the network runs here alone: {error}") from error
    weights = network.memory.weights.bytes.tobytes()
    held = {"network.so": library, "weights.bin": weights}
    about = _about(network, program, code, held)
    return {
        "__init__.py": _source(runner),
        "crew.py": _source(crew),
        "pinning.py": _source(pinning),
        "network.json": _json(about),
        "plan.json": _json(network.plan.to_json()),
        "network.h": _header(about).encode(),
        "libnetwork.a": archive(code.objects),
        **held,
    }


def program_of(network: Network, module: bytes) -> NetworkProgram:
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
    network: Network, program: NetworkProgram, code: CompiledProgram, held: Mapping[str, bytes]
) -> dict[str, Any]:
    def array(one: NDArray[Any]) -> dict[str, Any]:
        at = network.memory.place(one.ctypes.data)
        return {"offset": at.offset, "shape": list(one.shape), "dtype": str(one.dtype)}

    return {
        "schema": RUNNER_SCHEMA,
        "name": program.name,
        "model": network.plan.model,
        "target": network.plan.target,
        "accuracy": network.plan.accuracy,
        "toolchain": identity(),
        "features": list(code.features),
        "threads": program.threads,
        "activations_bytes": program.activations_bytes,
        "weights_bytes": len(network.memory.weights.bytes),
        "barrier": program.barrier.offset,
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in held.items()},
        "inputs": list(map(array, network.inputs)),
        "results": list(map(array, network.results)),
    }


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


def _source(module: ModuleType) -> bytes:
    """Return the source of a module for the folder."""
    text = Path(str(module.__file__)).read_text(encoding="utf-8")
    for ours, of_folder in _MOVED:
        text = text.replace(f"from {ours} import", f"from {of_folder} import")
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
