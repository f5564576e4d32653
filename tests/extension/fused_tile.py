"""A micro-kernel: outer products for the nests that multiply and add by `fmuladd`."""

from dataclasses import dataclass, replace

from llvmlite import ir

from tilewise.kernels.native.microkernels.microkernel import ANY_USE, Piece, Use
from tilewise.kernels.native.microkernels.outer_product import OuterProduct
from tilewise.kernels.native.microkernels.outer_product_code import (
    OuterProductSpec,
    emit_outer_product,
)
from tilewise.kernels.nest import Nest


@dataclass(frozen=True)
class FusedTile(OuterProduct):
    """An outer product whose whole tiles take two iterations of the reduction at a time."""

    @classmethod
    def serves(cls, nest: Nest) -> bool:
        """Return whether an outer product multiplies and adds by `fmuladd`."""
        name = nest.compute.instruction or ""
        return name.endswith(".fmuladd.f32") and OuterProduct.serves(nest) and not nest.algorithm

    def pieces(self, use: Use = ANY_USE) -> dict[str, Piece]:
        """Return the functions of an outer product, that for whole tiles by an own emitter."""
        made = super().pieces(use)
        full = made["full"]
        return made | {"full": replace(full, name="fused tile", emitter=emit_fused_tile)}


def emit_fused_tile(module: ir.Module, spec: OuterProductSpec) -> ir.Function:
    """Add the micro-kernel for whole tiles to `module`."""
    return emit_outer_product(module, replace(spec, unroll=2 * spec.unroll))
