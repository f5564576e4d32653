"""Emitted functions into machine code, as addresses a driver can call.

Each function is compiled alone, when a schedule first needs it, and kept for other processes:
a micro-kernel for every schedule with its register tile and unroll factor (one that is called
seldom: with any factor), a pack for every register tile of as many columns. So a candidate that
differs from earlier ones in its blocks alone compiles nothing here, unless they make a seldom
micro-kernel a frequent one.
"""

import functools
from collections.abc import Collection
from dataclasses import dataclass, field

from llvmlite import ir

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.jit.engines import Loaded
from tilewise.kernels.native.jit.object_cache import object_code
from tilewise.kernels.native.jit.object_code import ObjectCode, Passes
from tilewise.kernels.native.microkernels.abi import FUNCTIONS
from tilewise.kernels.native.microkernels.specs import MicroKernel, Piece
from tilewise.kernels.native.microkernels.use import ANYHOW, Use

MOST_LOADED = 128  # functions that a process holds beside those in use


@dataclass(frozen=True)
class CompiledKernels:
    """Addresses of a micro-kernel and of its packs; valid while this object lives.

    Attributes:
        addresses: by the names in `FUNCTIONS`; 0 for what is not needed.
    """

    addresses: dict[str, int]
    _owners: tuple[Loaded, ...] = field(repr=False)


def compile_kernels(
    kernel: MicroKernel, needed: Collection[str] = FUNCTIONS, use: Use = ANYHOW
) -> CompiledKernels:
    """Compile a micro-kernel and its packs.

    Args:
        kernel: which.
        use: how its nest uses it.
        needed: which of `FUNCTIONS`; those that it does not have are passed over.

    Raises:
        LoweringError: code generation failed.
    """
    try:
        loaded = {name: load(p) for name, p in kernel.pieces(use).items() if name in needed}
    except Exception as error:
        raise LoweringError(f"compiling {kernel.spec} failed: {error}") from error
    addresses = {name: owner.addresses[0] for name, owner in loaded.items()}
    return CompiledKernels(dict.fromkeys(FUNCTIONS, 0) | addresses, tuple(loaded.values()))


@functools.lru_cache(maxsize=MOST_LOADED)
def load(piece: Piece) -> Loaded:
    """A function in this process, compiled unless it is kept."""
    return Loaded(code_of(piece))


def code_of(piece: Piece) -> ObjectCode:
    """A function's machine code, kept from now on."""
    passes: Passes = "none" if piece.is_as_written else "level 3"
    return object_code(repr(piece), lambda module: [piece.emit(module)], passes)


def emit_all(module: ir.Module, kernel: MicroKernel, use: Use = ANYHOW) -> list[ir.Function]:
    """Add every function of a micro-kernel to `module`, in the order of `pieces`."""
    return [piece.emit(module) for piece in kernel.pieces(use).values()]
