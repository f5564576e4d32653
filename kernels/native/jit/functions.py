"""Emitted functions into machine code, as addresses a driver can call.

Each function is compiled alone, when a schedule first needs it, and kept for other processes:
a micro-kernel for every schedule with its register tile and unroll factor (one that is called
seldom: with any factor), a pack for every register tile of as many columns. So a candidate that
differs from earlier ones in its blocks alone compiles nothing here, unless they make a seldom
micro-kernel a frequent one.
"""

import functools
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

from llvmlite import ir

from kernels.arithmetic import size_of
from kernels.errors import LoweringError
from kernels.native.jit.object_code import Loaded, ObjectCode, Passes, object_code
from kernels.native.microkernels.inner_product import emit_inner_product, emit_pack_columns
from kernels.native.microkernels.inner_product_spec import InnerProductSpec
from kernels.native.microkernels.outer_product import (
    emit_edge_microkernel,
    emit_filling_microkernel,
    emit_microkernel,
)
from kernels.native.microkernels.outer_product_spec import MicroKernelSpec
from kernels.native.microkernels.use import ANYHOW, Use
from kernels.native.packing.panels import emit_copy_rows, emit_pack_panel, emit_transpose_panel
from kernels.native.packing.patches import emit_copy_patches

KernelSpec = MicroKernelSpec | InnerProductSpec

FUNCTIONS = (
    "full", "edge", "pack_b_panel", "pack_a_panel", "copy_rows", "filling", "copy_patches",
)  # fmt: skip
"""What a driver may call, by the names of its parameters.

The micro-kernel for whole tiles, and that for tiles which C cuts off; the packs of one panel
of B, of one strip of a transposed A, and of rows of A; the micro-kernel that fills a panel of
B; the copy of pixels of an image's channels to rows of B.
"""
MOST_LOADED = 128  # functions that a process holds beside those in use


@dataclass(frozen=True)
class Piece:
    """One function, before it is compiled.

    Attributes:
        name: which of `_EMITTERS` emits it.
        given: what that takes beside the module; with the name, all that decides the code.
    """

    name: str
    given: tuple[Any, ...]

    def emit(self, module: ir.Module) -> ir.Function:
        """Add the function to `module`."""
        return _EMITTERS[self.name](module, *self.given)

    @property
    def passes(self) -> Passes:
        """The passes that it needs."""
        return "none" if self.name in _AS_WRITTEN else "level 3"


_EMITTERS: dict[str, Callable[..., ir.Function]] = {
    "full": emit_microkernel,
    "edge": emit_edge_microkernel,
    "filling": emit_filling_microkernel,
    "full product": functools.partial(emit_inner_product, edge=False),
    "edge product": functools.partial(emit_inner_product, edge=True),
    "columns of b": emit_pack_columns,
    "panel of b": emit_pack_panel,
    "transposed panel of b": emit_transpose_panel,
    "strip of a": functools.partial(emit_pack_panel, for_a=True),
    "rows of a": emit_copy_rows,
    "patches": emit_copy_patches,
}
_AS_WRITTEN = ("full", "edge", "filling")


def pieces(spec: KernelSpec, use: Use = ANYHOW) -> dict[str, Piece]:
    """The functions of a spec as they are used, by their names in `FUNCTIONS`.

    Where no tile is cut, that for such tiles takes all, and is of no use.
    """
    how, lanes = spec.how, spec.lanes
    shared = {
        "pack_a_panel": Piece("strip of a", (how, lanes, 1)),
        "copy_rows": Piece("rows of a", (how, lanes * size_of(how.accumulator))),
    }
    if isinstance(spec, InnerProductSpec):
        return {
            "full": Piece("full product", (spec,)),
            "edge": Piece("edge product", (spec,)),
            "pack_b_panel": Piece("columns of b", (replace(spec, epilogue=0),)),
        } | shared
    # Less what the code does not depend on, so that more schedules share it.
    filling = replace(spec, b_transposed=False, patch_stride=0)
    kernel = replace(filling, filled_row=0)
    side = "transposed panel of b" if spec.b_transposed else "panel of b"
    found = {
        "full": Piece("full", (kernel,)),
        "edge": Piece("edge", (_as_used(kernel, "edge", use), use.cut or ANYHOW.cut)),
        "pack_b_panel": Piece(side, (how, lanes, spec.vectors)),
    } | shared
    if spec.patch_stride:
        found["copy_patches"] = Piece("patches", (how, lanes, spec.patch_stride))
    elif spec.filled_row:
        found["filling"] = Piece("filling", (_as_used(filling, "filling", use),))
    return found


def _as_used(spec: MicroKernelSpec, name: str, use: Use) -> MicroKernelSpec:
    """The spec of a micro-kernel that may be called seldom.

    One that prefetches stays as it is: the driver counts what each of its iterations fetches.
    """
    return replace(spec, unroll=1) if name in use.seldom and not spec.prefetched else spec


@dataclass(frozen=True)
class CompiledKernels:
    """Addresses of a micro-kernel and of its packs; valid while this object lives.

    Attributes:
        addresses: by the names in `FUNCTIONS`; 0 for what is not needed.
    """

    addresses: dict[str, int]
    _owners: tuple[Loaded, ...] = field(repr=False)


def compile_kernels(
    spec: KernelSpec, needed: Collection[str] = FUNCTIONS, use: Use = ANYHOW
) -> CompiledKernels:
    """Compile a micro-kernel and its packs.

    Args:
        spec: the micro-kernel's.
        use: how its nest uses it.
        needed: which of `FUNCTIONS`; those that the spec does not have are passed over.

    Raises:
        LoweringError: code generation failed.
    """
    try:
        loaded = {name: load(p) for name, p in pieces(spec, use).items() if name in needed}
    except Exception as error:
        raise LoweringError(f"compiling {spec} failed: {error}") from error
    addresses = {name: owner.addresses[0] for name, owner in loaded.items()}
    return CompiledKernels(dict.fromkeys(FUNCTIONS, 0) | addresses, tuple(loaded.values()))


@functools.lru_cache(maxsize=MOST_LOADED)
def load(piece: Piece) -> Loaded:
    """A function in this process, compiled unless it is kept."""
    return Loaded(code_of(piece))


def code_of(piece: Piece) -> ObjectCode:
    """A function's machine code, kept from now on."""
    return object_code(repr(piece), lambda module: [piece.emit(module)], piece.passes)


def emit_all(module: ir.Module, spec: KernelSpec, use: Use = ANYHOW) -> list[ir.Function]:
    """Add every function of a spec to `module`, in the order of `pieces`."""
    return [piece.emit(module) for piece in pieces(spec, use).values()]
