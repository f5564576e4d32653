"""Convolutions that a model's readers split into several `conv2d`, wherever IREE has none."""

from typing import Any

from tilewise.kernels.mlir.frontend.child.operations import operations
from tilewise.kernels.mlir.frontend.child.transposed import split_transposed
from tilewise.kernels.mlir.frontend.child.volumes import split_volume
from tilewise.kernels.mlir.frontend.child.writing import replace


def split(module: Any) -> bool:
    """Split the convolutions of a module on linalg in place; return whether there were any."""
    is_split = False
    for split_one in (split_transposed, split_volume):
        for op in [op for op, _, _ in operations(module.operation)]:
            if (made := split_one(op)) is not None:  # read late: its operand may be replaced
                replace(op, *made)
                is_split = True
    return is_split
