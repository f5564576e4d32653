"""Read modules in a limited child process, since they may crash MLIR or exhaust the memory.

Most of a model's text is hexadecimal weights. Where their values do not matter they are removed
before parsing; an attribute with a missing resource parses as well.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tilewise.kernels.errors import CompilerAbsentError, DimError, ModuleError, PlaceError
from tilewise.kernels.mlir.frontend.graph import Graph, Imported, LoneOp
from tilewise.kernels.quoting import one_line, quoted
from tilewise.kernels.system.limited_child import may_write, run_limited
from tilewise.kernels.system.typed_json import from_json

if TYPE_CHECKING:  # NumPy is loaded for weights alone: the service reads modules without it
    from numpy.typing import NDArray

    from tilewise.kernels.mlir.frontend.program import Constant, ModuleProgram, Outline

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
    """Return whether a file is an ONNX model: a protocol buffer that begins with the version."""
    return module.startswith(b"\x08")


def is_bytecode(module: bytes) -> bool:
    """Return whether a module is in MLIR's binary form."""
    return module.startswith(b"ML\xefR")


def without_weights(module: bytes) -> bytes:
    """Return a module's text without long values; bytecode unchanged."""
    if is_bytecode(module):
        return module
    module = _LONG.sub(_CUT, module).replace(_INLINE, _ELIDED)
    sections = [found.start() for found in _SECTION.finditer(module)]
    if not sections:
        return module
    return module[: sections[-1]] + _without_entries(module[sections[-1] :])


def _without_entries(section: bytes) -> bytes:
    """Return resources without the entries whose values were removed, each with one comma."""
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
PIECE = 32 << 20  # bytes of a file: a child may not write larger ones


@dataclass(frozen=True)
class ReadLimits:
    """Limits of one child process."""

    seconds: float = 60.0
    memory_bytes: int = 4 << 30


USUAL_LIMITS = ReadLimits()
NO_SIZES: Mapping[str, int] = {}
WITH_WEIGHTS = ReadLimits(600.0, 16 << 30)
"""For a child that holds the weights of a model several times."""


def read_module(
    module: bytes, limits: ReadLimits = USUAL_LIMITS, sizes: Mapping[str, int] = NO_SIZES
) -> Imported:
    """Return the problems of a module: linalg, torch, StableHLO, TOSA or ONNX.

    `sizes` are those of its dynamic dims; without any, ops with dynamic shapes are skipped.

    Raises:
        ModuleError: it cannot be lowered, or exceeds the limits of time or memory.
        DimError: a name is unknown, or a dim has no size.
        CompilerAbsentError: MLIR is not installed.
        LimitError: a limit is invalid.
    """
    return from_json(Imported, ask_of_module(module, limits, {"sizes": dict(sizes)}))


def read_graph(module: bytes, limits: ReadLimits = USUAL_LIMITS) -> Graph:
    """Return a module's problems, other ops and tensors; raise as `read_module`."""
    return from_json(Graph, ask_of_module(module, limits, {"outline": ""})["graph"])


def read_op(module: bytes, place: str | None = None, limits: ReadLimits = USUAL_LIMITS) -> LoneOp:
    """Return one op of a module in a function of its own; raise as `read_module`.

    `place` is the op's number among the problems, from 1, or its place as `tilewise import` prints
    it; None for the only one.

    Raises:
        PlaceError: no op or several are at the place, or the op cannot be separated.
    """
    reply = ask_of_module(module, limits, {"place": place or ""})
    if "refused" in reply:
        prefix = "" if place is None else f"place={quoted(place)}: "
        raise PlaceError(f"{prefix}{reply['refused']}")
    return from_json(LoneOp, reply)


def ask_of_module(
    module: bytes, limits: ReadLimits, more: dict[str, Any], child: str = CHILD
) -> dict[str, Any]:
    """Return a child's reply on a module; raise as `read_module`."""
    with on_disk(module) as path:
        return ask_of_file(path, limits, more, child)


@contextmanager
def on_disk(module: bytes) -> Iterator[Path]:
    """Yield the path of a module in a temporary folder."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "module.mlir"
        with may_write(len(module)):
            path.write_bytes(module)
        yield path


def ask_of_file(
    path: Path, limits: ReadLimits, more: dict[str, Any], child: str = CHILD
) -> dict[str, Any]:
    """Return a child's reply on a module in a file; raise as `read_module`."""
    if find_spec("iree") is None or find_spec("iree.compiler") is None:
        raise CompilerAbsentError("iree.compiler is not installed; install tilewise[kernels]")
    request = {"path": str(path), "seconds": limits.seconds,
               "memory_bytes": limits.memory_bytes, **more}  # fmt: skip
    ended = run_limited(request, child)
    if ended.reply is None:
        message = one_line(_without_traceback(ended.message))[:LONGEST]
        raise ModuleError(f"the module was not read: {message}")
    if "dim" in ended.reply:
        raise DimError(one_line(ended.reply["dim"]))
    if "error" in ended.reply:
        raise ModuleError(f"the module was not read: {one_line(ended.reply['error'])[:LONGEST]}")
    return ended.reply


def _without_traceback(message: str) -> str:
    """Return a child's message, or of a traceback the first and the last line."""
    lines = message.rstrip().splitlines()
    has_traceback = any(line.startswith('  File "') for line in lines)
    return f"{lines[0]} {lines[-1]}" if has_traceback else message


_REWRITTEN = re.compile(rb"onnx\.Attention|scaled_dot_product|iree_linalg_ext|hlo|tosa")
_SPLIT = re.compile(rb"convolution|aten\.conv|onnx\.Conv|insert_slice|conv_?3d")


def as_module(
    source: bytes,
    *,
    splits: bool = False,
    sizes: Mapping[str, int] = NO_SIZES,
    limits: ReadLimits = WITH_WEIGHTS,
) -> bytes:
    """Return an ONNX model as bytecode with weights, and a module unchanged if that is as good.

    IREE compiles attention as one op, so it is taken apart; sums in bf16 or f16 are widened. With
    `splits` convolutions of volumes and transposed ones are split, too, as `read_module` does;
    their module is on linalg then. Dynamic dims get `sizes`, or stay where those are 0; a module in
    StableHLO or TOSA is on linalg then.

    Raises:
        ModuleError: the model cannot be imported, or the package `onnx` is not installed.
        DimError: a name of `sizes` is unknown, or a dim has no size.
        CompilerAbsentError: MLIR is not installed.
    """
    more: dict[str, Any] = {"sizes": dict(sizes)} if sizes else {}
    if splits and (is_onnx(source) or _SPLIT.search(source)):
        more["split"] = ""
    if not (more or is_onnx(source) or _REWRITTEN.search(source)):
        return source
    with on_disk(source) as path, TemporaryDirectory() as folder:
        reply = ask_of_file(path, limits, {"apart": folder, **more})
        pieces = [(Path(folder) / str(i)).read_bytes() for i in range(reply["pieces"])]
        return b"".join(pieces) or source


def read_program(module: bytes) -> "ModuleProgram":
    """Return a module with one function as a program with weights; raise as `read_module`.

    Arguments, results or weights that cannot be run here raise ModuleError, too.
    """
    from tilewise.kernels.mlir.frontend.program import ModuleProgram, Outline

    with on_disk(module) as path:
        outline = from_json(Outline, ask_of_file(path, WITH_WEIGHTS, {"pieces": str(path.parent)}))
        if outline.refused:
            raise ModuleError(f"the module cannot be run here: {one_line(outline.refused)}")
        weights = {(one.node, one.role): _joined(one, path.parent) for one in outline.constants}
    return ModuleProgram(outline, weights)


def read_outline(module: bytes, limits: ReadLimits = USUAL_LIMITS) -> "Outline":
    """Return what a module does, without weights; raise as `read_module`.

    Constants of passes have no pieces, and those of contractions are left out.
    """
    from tilewise.kernels.mlir.frontend.program import Outline

    return from_json(Outline, ask_of_module(module, limits, {"outline": ""}))


def _joined(constant: "Constant", folder: Path) -> "NDArray[Any]":
    """Return a constant from its pieces, in memory of its own."""
    import numpy as np

    from tilewise.kernels.mlir.frontend.program import WEIGHT_TYPES

    kind = WEIGHT_TYPES[constant.dtype]
    raw = b"".join((folder / f"{constant.name}.{i}").read_bytes() for i in range(constant.pieces))
    if len(raw) != prod(constant.shape) * np.dtype(kind).itemsize:
        raise ModuleError(f"the module was not read: {constant.role} of node {constant.node} has "
                          f"{len(raw)} bytes")  # fmt: skip
    return np.frombuffer(raw, kind).reshape(constant.shape)
