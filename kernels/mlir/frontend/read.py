"""Reading a module: in a child process within limits, since it may do anything to MLIR."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tilewise.kernels.errors import CompilerAbsentError, ModuleError, PlaceError
from tilewise.kernels.mlir.frontend.graph import Graph
from tilewise.kernels.mlir.frontend.imported import Imported
from tilewise.kernels.mlir.frontend.lone import LoneOp
from tilewise.kernels.quoting import one_line, quoted
from tilewise.kernels.system.limited_child import run_limited
from tilewise.kernels.system.typed_json import from_json

CHILD = "tilewise.kernels.mlir.frontend.child.read"
LONGEST = 300  # characters of an error


@dataclass(frozen=True)
class Limits:
    """Of one reading.

    Attributes:
        seconds: for which it may run.
        memory_bytes: that it may hold.
    """

    seconds: float = 60.0
    memory_bytes: int = 4 << 30


def read_module(module: bytes, limits: Limits = Limits()) -> Imported:
    """The problems of a module's text or bytecode: linalg, torch, StableHLO, TOSA or ONNX.

    Raises:
        ModuleError: it is no MLIR that can be lowered, or it takes too long or too much memory.
        CompilerAbsentError: MLIR is not installed.
        LimitError: a limit cannot be one.
    """
    return from_json(Imported, ask_of_module(module, limits))


def read_graph(module: bytes, limits: Limits = Limits()) -> Graph:
    """A module's problems, its other ops, and the tensors between; errors as of `read_module`."""
    return from_json(Graph, ask_of_module(module, limits, {"graph": ""}))


def read_op(module: bytes, place: str | None = None, limits: Limits = Limits()) -> LoneOp:
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
    """What a child says of a module; errors as of `read_module`.

    Args:
        module: its text or bytecode, which the child finds as a file.
        limits: of the child.
        more: what else it is asked.
        child: the module that the child runs.
    """
    with on_disk(module) as path:
        return ask_of_file(path, limits, more or {}, child)


@contextmanager
def on_disk(module: bytes) -> Iterator[Path]:
    """The path of a module in a folder of its own, while it is there."""
    with tempfile.TemporaryDirectory() as folder:
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
