"""Emitted functions into machine code, as addresses a driver can call.

Nothing but the micro-kernel's own spec decides its code, so schedules that share it share
the compilation (0.06 to 0.3 s), also between processes.
"""

import functools
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from kernels.arithmetic import size_of
from kernels.errors import LoweringError
from kernels.native.copies import emit_copy_rows, emit_pack_panel, emit_transpose_panel
from kernels.native.inner_product import emit_inner_product, emit_pack_columns
from kernels.native.inner_product_spec import InnerProductSpec
from kernels.native.microkernel import (
    MicroKernelSpec,
    emit_filling_microkernel,
    emit_microkernel,
)
from kernels.native.objects import Loaded, compile_module, keep_object, kept_object
from kernels.native.patches import emit_copy_patches

KernelSpec = MicroKernelSpec | InnerProductSpec


@dataclass(frozen=True)
class CompiledKernels:
    """Addresses of a micro-kernel and of its packs; valid while this object lives.

    Attributes:
        full: the micro-kernel for whole tiles.
        edge: the micro-kernel for tiles that C cuts off.
        pack_b_panel: packs one panel of B.
        pack_a_panel: packs one strip of a transposed A.
        copy_rows: packs rows of A.
        by_structure: what else the structure of the schedule needs, else 0: the micro-kernel
            that fills a panel of B, or the copy of pixels of an image's channels to rows of B.
    """

    full: int
    edge: int
    pack_b_panel: int
    pack_a_panel: int
    copy_rows: int
    by_structure: int
    _owner: Any


@functools.lru_cache(maxsize=512)
def compile_kernels(spec: KernelSpec) -> CompiledKernels:
    """Compile a micro-kernel and its packs.

    Raises:
        LoweringError: code generation failed.
    """
    try:
        made = kept_object(repr(spec))
        if made is None:
            module = ir.Module("kernel")
            made = compile_module(module, emit_all(module, spec))
            keep_object(repr(spec), made)
        owner = Loaded(made)
    except Exception as error:
        raise LoweringError(f"compiling {spec} failed: {error}") from error
    full, edge, pack_b_panel, pack_a_panel, copy_rows, *by_structure = owner.addresses
    return CompiledKernels(
        full=full,
        edge=edge,
        pack_b_panel=pack_b_panel,
        pack_a_panel=pack_a_panel,
        copy_rows=copy_rows,
        by_structure=by_structure[0] if by_structure else 0,
        _owner=owner,
    )


def emit_all(module: ir.Module, spec: KernelSpec) -> list[ir.Function]:
    """Add every function of a spec to `module`, in the order of `CompiledKernels`' addresses."""
    how, lanes = spec.how, spec.lanes
    functions = [
        *_emit_for_b(module, spec),
        emit_pack_panel(module, how, lanes, 1, for_a=True),
        emit_copy_rows(module, how, lanes * size_of(how.accumulator)),
    ]
    if isinstance(spec, MicroKernelSpec) and spec.patch_stride:
        functions.append(emit_copy_patches(module, how, lanes, spec.patch_stride))
    elif isinstance(spec, MicroKernelSpec) and spec.filled_row:
        functions.append(emit_filling_microkernel(module, spec))
    return functions


def _emit_for_b(module: ir.Module, spec: KernelSpec) -> list[ir.Function]:
    """Both micro-kernels, and the pack of B that fits them."""
    if isinstance(spec, InnerProductSpec):
        return [
            emit_inner_product(module, spec, edge=False),
            emit_inner_product(module, spec, edge=True),
            emit_pack_columns(module, spec),
        ]
    pack_b = emit_transpose_panel if spec.b_transposed else emit_pack_panel
    return [
        emit_microkernel(module, spec, edge=False),
        emit_microkernel(module, spec, edge=True),
        pack_b(module, spec.how, spec.lanes, spec.vectors),
    ]
