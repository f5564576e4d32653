"""Packs and unpacks that a module has left, and which of them move nothing."""

from collections.abc import Iterator
from typing import Any

from iree.compiler import ir

from tilewise.kernels.mlir.frontend.child.operations import operations
from tilewise.kernels.mlir.network.child.origins import Origins
from tilewise.kernels.mlir.network.plan import Remaining

NAMES = ("linalg.pack", "linalg.unpack")


def count(module: Any, origins: Origins) -> Iterator[Remaining]:
    """Each pack and unpack of a module on tensors."""
    for op, _, _ in operations(module.operation):
        if op.name in NAMES:
            yield Remaining(
                op.name.removeprefix("linalg."),
                f"{op.operands[0].type} to {op.results[0].type}",
                origins.is_weight(op.operands[0]),
                is_reshape(op),
            )


def is_reshape(op: Any) -> bool:
    """Whether a pack or an unpack leaves every element where it lies.

    Axes and blocks of one element do not matter. What is padded moves.
    """
    plain = op.operands[0] if op.name == "linalg.pack" else op.results[0]
    sizes = list(plain.type.shape)
    positions = list(ir.DenseI64ArrayAttr(op.attributes["inner_dims_pos"]))
    tiles = list(ir.DenseI64ArrayAttr(op.attributes["static_inner_tiles"]))
    order = list(range(len(sizes)))
    if "outer_dims_perm" in op.attributes:
        order = list(ir.DenseI64ArrayAttr(op.attributes["outer_dims_perm"])) or order
    block = dict(zip(positions, tiles, strict=True))
    if any(size <= 0 for size in (*sizes, *tiles)):
        return False
    if any(sizes[axis] % tile for axis, tile in block.items()):
        return False
    # An element's place is told by counters; they have to vary in the order of the plain axes.
    outer = [(axis, 0) for axis in order if sizes[axis] // block.get(axis, 1) > 1]
    inner = [(axis, 1) for axis in positions if block[axis] > 1]
    counters = outer + inner
    return counters == sorted(counters)
