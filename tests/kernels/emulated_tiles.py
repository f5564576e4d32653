"""Matrix tiles without AMX, and `vpdpbusd` of 32 bytes: functions in place of intrinsics.

Those of tiles are Python functions that check what a processor checks. Micro-kernels stay as they
are, but for the names of intrinsics. What a product of two tiles is comes from the declaration of
its instruction. Shapes that disagree are complaints: on a processor, illegal instructions.
"""

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from llvmlite import ir

from tilewise.kernels.instructions import Form, Instruction
from tilewise.kernels.instructions.declaration import DECLARED
from tilewise.kernels.native.ir import dot_products
from tilewise.kernels.native.ir.vectors import VOID, declare
from tilewise.kernels.native.jit import loading
from tilewise.kernels.native.jit.loading import Loaded
from tilewise.kernels.native.jit.object_code import compile_module
from tilewise.kernels.native.microkernels.matrix_tiles_code import Tiles
from tilewise.kernels.native.microkernels.microkernel import Piece
from tilewise.kernels.native.packing import widening
from tilewise.kernels.target import Target
from tilewise.kernels.target.features import implied
from tilewise.kernels.target.machine import described

PREFIX = "tilewise_emulated_"
ROWS, ROW_BYTES = 16, 64
_NUMBER, _POINTER, _STRIDE = ctypes.c_uint8, ctypes.c_size_t, ctypes.c_int64
_MOVE = (_NUMBER, _POINTER, _STRIDE)


class TileFile:
    """The tile registers of one thread."""

    def __init__(self) -> None:
        self.rows, self.row_bytes = [0] * 8, [0] * 8
        self.data = np.zeros((8, ROWS, ROW_BYTES), np.uint8)
        self.is_configured = False

    def ldtilecfg(self, at: int) -> None:
        """Take a configuration; all tiles become zero."""
        given = np.frombuffer(ctypes.string_at(at, 64), np.uint8)
        assert given[0] == 1, f"palette {given[0]}"
        self.row_bytes = given[16:32].view(np.uint16).tolist()
        self.rows = given[48:56].tolist()
        assert max(self.rows) <= ROWS and max(self.row_bytes) <= ROW_BYTES, "configuration"
        self.is_configured, self.data[:] = True, 0

    def tilerelease(self) -> None:
        """Return to the initial state."""
        self.is_configured = False

    def tilezero(self, tile: int) -> None:
        """Clear a tile."""
        self._use(tile)
        self.data[tile] = 0

    def tileloadd64(self, tile: int, at: int, stride: int) -> None:
        """Load the configured rows; what is behind them becomes zero."""
        rows, width = self._use(tile)
        self.data[tile] = 0
        for row in range(rows):
            read = ctypes.string_at(at + row * stride, width)
            self.data[tile, row, :width] = np.frombuffer(read, np.uint8)

    tileloaddt164 = tileloadd64

    def tilestored64(self, tile: int, at: int, stride: int) -> None:
        """Store the configured rows."""
        rows, width = self._use(tile)
        for row in range(rows):
            ctypes.memmove(at + row * stride, self.data[tile, row].tobytes(), width)

    def multiply(self, one: Instruction, c: int, a: int, b: int) -> None:
        """Add the product of two tiles to a third."""
        (m, width_c), (m_a, width_a), (k, width_b) = map(self._use, (c, a, b))
        assert len({a, b, c}) == 3, f"registers {c} {a} {b} are not three"
        shapes = f"shapes of C {m}x{width_c}, A {m_a}x{width_a}, B {k}x{width_b}"
        assert m == m_a and width_c == width_b and width_a == 4 * k, shapes
        of_a = _widened(self.data[a], one.a)[:m, : k * one.k]
        words = _widened(self.data[b], one.b).reshape(ROWS, ROWS, one.k)[:k, : width_b // 4]
        of_b = words.transpose(0, 2, 1).reshape(k * one.k, -1)
        kind = np.float32 if one.c == "f32" else np.int32
        view = self.data[c].view(kind)
        view[:m, : width_c // 4] = one.meaning(view[:m, : width_c // 4], of_a, of_b)

    def _use(self, tile: int) -> tuple[int, int]:
        assert self.is_configured, "the tile registers are not configured"
        assert self.rows[tile] and self.row_bytes[tile], f"tile {tile} has no shape"
        return self.rows[tile], self.row_bytes[tile]


def _widened(tile: "np.ndarray[Any, Any]", dtype: str) -> "np.ndarray[Any, Any]":
    """Return a tile's elements in the type in which they are multiplied exactly."""
    if dtype == "bf16":
        return (tile.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if dtype == "f16":
        return tile.view(np.float16).astype(np.float32)
    return tile.view(np.uint8 if dtype == "u8" else np.int8).astype(np.int32)


@contextmanager
def emulated_tiles() -> Iterator[list[str]]:
    """Compile micro-kernels with emulated tiles inside; yield complaints, which must stay none.

    Nothing compiled inside is kept for other processes, or found from outside.
    """
    files: dict[int, TileFile] = {}
    complaints: list[str] = []

    def guarded(call: Callable[..., None]) -> Callable[..., None]:
        def run(*given: int) -> None:
            try:
                call(files.setdefault(threading.get_ident(), TileFile()), *given)
            except Exception as error:  # ctypes would print it and go on
                complaints.append(str(error))

        return run

    def multiplies(one: Instruction) -> Callable[..., None]:
        return lambda file, *tiles: file.multiply(one, *tiles)

    calls: dict[str, tuple[Sequence[Any], Callable[..., None]]] = {
        "ldtilecfg": ((_POINTER,), TileFile.ldtilecfg),
        "tilerelease": ((), TileFile.tilerelease),
        "tilezero": ((_NUMBER,), TileFile.tilezero),
        "tileloadd64": (_MOVE, TileFile.tileloadd64),
        "tileloaddt164": (_MOVE, TileFile.tileloaddt164),
        "tilestored64": (_MOVE, TileFile.tilestored64),
        **{i.mnemonic: ((_NUMBER,) * 3, multiplies(i)) for i in DECLARED if Form.TILES in i.forms},
    }
    kept = [
        (name, ctypes.CFUNCTYPE(None, *kinds)(guarded(c))) for name, (kinds, c) in calls.items()
    ]
    for name, function in kept:
        llvm.add_symbol(PREFIX + name, ctypes.cast(function, ctypes.c_void_p).value)

    def call(tiles: Tiles, name: str, *given: ir.Value) -> None:
        kinds = [value.type for value in given]
        tiles.builder.call(declare(tiles.builder.module, PREFIX + name, VOID, kinds), given)

    with pytest.MonkeyPatch.context() as patch:
        for user in (dot_products, widening):
            patch.setattr(user, "declare", _declared)
        patch.setattr(Tiles, "_call", call)
        patch.setattr(loading, "load", _load)
        yield complaints
    assert not any(file.is_configured for file in files.values()), "a call released no registers"


def _load(piece: Piece) -> Loaded:
    module = ir.Module("emulated")
    return Loaded(compile_module(module, [piece.emit(module)], "none"))


ALDER_LAKE = described("alderlake", implied("alderlake"))


@contextmanager
def emulated_for(target: Target) -> Iterator[None]:
    """Compile micro-kernels of Alder Lake without its instruction."""
    with pytest.MonkeyPatch.context() as patch:
        if target is ALDER_LAKE:
            patch.setattr(dot_products, "declare", _declared)
            patch.setattr(loading, "load", _load)
        yield


def _declared(module: ir.Module, name: str, kind: ir.Type, types: Sequence[ir.Type]) -> Any:
    """Declare an intrinsic, or define what `vpdpbusd` or a permutation of i16 computes."""
    called = next((one for one in ("vpdpbusd", "permvar") if one in name), None)
    if called is None:
        return declare(module, name, kind, types)
    if (emulated := PREFIX + called) in module.globals:
        return module.globals[emulated]
    fn = ir.Function(module, ir.FunctionType(kind, types), emulated)
    fn.linkage, b = "internal", ir.IRBuilder(fn.append_basic_block())
    total, *factors = fn.args
    if called == "permvar":  # of a table by indices
        index = b.and_(*factors, ir.Constant(kind, [kind.count - 1] * kind.count))
        for lane in map(ir.IntType(32), range(kind.count)):
            found = b.extract_element(fn.args[0], b.extract_element(index, lane))
            total = b.insert_element(total, found, lane)
    for left in () if called == "permvar" else range(0, 32, 8):
        up, down = (ir.Constant(kind, [by] * kind.count) for by in (left, 24))
        x, y = (b.shl(b.bitcast(factor, kind), up) for factor in factors)
        total = b.add(total, b.mul(b.lshr(x, down), b.ashr(y, down)))
    b.ret(total)
    return fn
