"""Reading a module, in a child process within limits: it may crash MLIR or exhaust the memory.

A model's text is weights for the most part, in hexadecimal. Where their values do not matter they
are cut out before parsing; an attribute whose resource is missing is as good as one that has it.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tilewise.kernels.errors import CompilerAbsentError, ModuleError, PlaceError
from tilewise.kernels.mlir.frontend.graph import Graph, Imported, LoneOp
from tilewise.kernels.quoting import one_line, quoted
from tilewise.kernels.system.limited_child import run_limited
from tilewise.kernels.system.typed_json import from_json

if TYPE_CHECKING:  # NumPy is loaded for weights alone: the service reads modules without it
    from numpy.typing import NDArray

    from tilewise.kernels.mlir.frontend.program import Constant, Outline, Program

BYTECODE = b"ML\xefR"
_LONG = re.compile(rb'"0x[0-9A-Fa-f]{4096,}"')  # passes read shapes and scalars, which are shorter
_CUT = b'"0x cut"'
_INLINE = b"dense<" + _CUT + b">"
_ELIDED = b"dense_resource<__elided__>"
_SECTION = re.compile(rb"^\{-#", re.MULTILINE)
_NAMED = re.compile(rb'(?:"[^"\n]*"|[A-Za-z0-9_.$-]+)\s*:\s*$')
_LONGEST_NAME = 600
_COMMA = re.compile(rb"\s*,")
_COMMA_BEFORE = re.compile(rb",\s*$")


def is_onnx(module: bytes) -> bool:
    """Whether a file is an ONNX model: a protocol buffer whose first field is the version."""
    return module.startswith(b"\x08")


def is_bytecode(module: bytes) -> bool:
    """Whether a module is in MLIR's binary form."""
    return module.startswith(BYTECODE)


def without_weights(module: bytes) -> bytes:
    """A module's text with long values cut out; bytecode as it is."""
    if is_bytecode(module):
        return module
    module = _LONG.sub(_CUT, module).replace(_INLINE, _ELIDED)
    sections = [found.start() for found in _SECTION.finditer(module)]
    if not sections:
        return module
    return module[: sections[-1]] + _without_entries(module[sections[-1] :])


def _without_entries(section: bytes) -> bytes:
    """The resources without the entries whose values are cut, each with one comma beside it."""
    first, *others = section.split(_CUT)
    kept = bytearray(first)
    for following in others:
        tail = _NAMED.sub(b"", bytes(kept[-_LONGEST_NAME:]))
        comma = _COMMA.match(following)
        if comma is None:
            tail = _COMMA_BEFORE.sub(b"", tail)
        kept[-_LONGEST_NAME:] = tail
        kept += following if comma is None else following[comma.end() :]
    return bytes(kept)


CHILD = "tilewise.kernels.mlir.frontend.child.read"
LONGEST = 300  # characters of an error


@dataclass(frozen=True)
class Limits:
    """Of one reading."""

    seconds: float = 60.0
    memory_bytes: int = 4 << 30


USUAL_LIMITS = Limits()
WITH_WEIGHTS = Limits(600.0, 16 << 30)
"""Of a reading that has the weights of a model in memory, several times."""


def read_module(module: bytes, limits: Limits = USUAL_LIMITS) -> Imported:
    """The problems of a module's text or bytecode: linalg, torch, StableHLO, TOSA or ONNX.

    Raises:
        ModuleError: it is no MLIR that can be lowered, or it takes too long or too much memory.
        CompilerAbsentError: MLIR is not installed.
        LimitError: a limit cannot be one.
    """
    return from_json(Imported, ask_of_module(module, limits))


def read_graph(module: bytes, limits: Limits = USUAL_LIMITS) -> Graph:
    """A module's problems, its other ops, and the tensors between; errors as of `read_module`."""
    return from_json(Graph, ask_of_module(module, limits, {"graph": ""}))


def read_op(module: bytes, place: str | None = None, limits: Limits = USUAL_LIMITS) -> LoneOp:
    """One op of a module in a function of its own; errors as of `read_module`.

    Args:
        module: its text or bytecode.
        place: the op's number among the module's problems, from 1, or its place as
            `tilewise import` prints it; None for the only one.
        limits: of the reading.

    Raises:
        PlaceError: no op is at the place, several are, or it cannot stand alone.
    """
    reply = ask_of_module(module, limits, {"place": place or ""})
    if "refused" in reply:
        told = "" if place is None else f"place={quoted(place)}: "
        raise PlaceError(f"{told}{reply['refused']}")
    return from_json(LoneOp, reply)


def ask_of_module(
    module: bytes, limits: Limits, more: dict[str, Any] | None = None, child: str = CHILD
) -> dict[str, Any]:
    """What a child says of a module; errors as of `read_module`."""
    with on_disk(module) as path:
        return ask_of_file(path, limits, more or {}, child)


@contextmanager
def on_disk(module: bytes) -> Iterator[Path]:
    """The path of a module in a folder of its own, while it is there."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "module.mlir"
        path.write_bytes(module)
        yield path


def ask_of_file(
    path: Path, limits: Limits, more: dict[str, Any], child: str = CHILD
) -> dict[str, Any]:
    """What a child says of a module in a file; errors as of `read_module`."""
    if find_spec("iree") is None or find_spec("iree.compiler") is None:
        raise CompilerAbsentError("iree.compiler is not installed; install tilewise[kernels]")
    request = {"path": str(path), "seconds": limits.seconds,
               "memory_bytes": limits.memory_bytes, **more}  # fmt: skip
    ended = run_limited(request, child)
    if ended.reply is None:
        told = one_line(_without_traceback(ended.message))[:LONGEST]
        raise ModuleError(f"the module was not read: {told}")
    if "error" in ended.reply:
        raise ModuleError(f"the module was not read: {one_line(ended.reply['error'])[:LONGEST]}")
    return ended.reply


def _without_traceback(message: str) -> str:
    """What became of a child: the first line, and of a traceback the last one."""
    lines = message.rstrip().splitlines()
    has_traceback = any(line.startswith('  File "') for line in lines)
    return f"{lines[0]} {lines[-1]}" if has_traceback else message


ONNX_CHILD = "tilewise.kernels.mlir.frontend.child.onnx"


def as_module(source: bytes) -> bytes:
    """An ONNX model as a module's bytecode, weights and all; what is a module stays as it is.

    Raises:
        ModuleError: the model cannot be imported, or the package `onnx` is not installed.
        CompilerAbsentError: MLIR is not installed.
    """
    if not is_onnx(source):
        return source
    with on_disk(source) as path, TemporaryDirectory() as folder:
        reply = ask_of_file(path, WITH_WEIGHTS, {"folder": folder}, ONNX_CHILD)
        return b"".join((Path(folder) / str(i)).read_bytes() for i in range(reply["pieces"]))


def read_program(module: bytes) -> "Program":
    """A module with one function as something to run, weights and all; errors as `read_module`.

    Raises:
        ModuleError: besides, its arguments, results or weights are none that can be run here.
    """
    from tilewise.kernels.mlir.frontend.program import Outline, Program

    with on_disk(module) as path:
        reply = ask_of_file(path, WITH_WEIGHTS, {"pieces": str(path.parent)})
        if "refused" in reply:
            raise ModuleError(f"the module cannot be run here: {one_line(reply['refused'])}")
        outline = from_json(Outline, reply)
        weights = {(one.node, one.role): _joined(one, path.parent) for one in outline.constants}
    return Program(outline, weights)


def read_outline(module: bytes, limits: Limits = USUAL_LIMITS) -> "Outline | None":
    """What a module with one function does, without weights; None if it is none that runs here.

    Constants of passes are there without pieces, those of contractions are not.

    Raises:
        ModuleError: as of `read_module`.
    """
    from tilewise.kernels.mlir.frontend.program import Outline

    reply = ask_of_module(module, limits, {"outline": ""})
    return None if "refused" in reply else from_json(Outline, reply)


def _joined(constant: "Constant", folder: Path) -> "NDArray[Any]":
    """A constant from its pieces, in memory of its own."""
    import numpy as np

    from tilewise.kernels.mlir.frontend.program import WEIGHT_TYPES

    kind = WEIGHT_TYPES[constant.dtype]
    raw = b"".join((folder / f"{constant.name}.{i}").read_bytes() for i in range(constant.pieces))
    if len(raw) != prod(constant.shape) * np.dtype(kind).itemsize:
        raise ModuleError(f"the module was not read: {constant.role} of node {constant.node} has "
                          f"{len(raw)} bytes")  # fmt: skip
    return np.frombuffer(raw, kind).reshape(constant.shape)
