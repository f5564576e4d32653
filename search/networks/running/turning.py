"""Ops that put the axes of a tensor in another order, as copies."""

from math import prod

from tilewise.kernels.mlir.frontend.program import Loops
from tilewise.kernels.native.conversion import Conversion


def conversion_of_loops(loops: Loops) -> Conversion | None:
    """The copy of a tensor, axes of one element left out; None for loops that do anything else."""
    if not loops.is_copy or loops.accesses[0].read is None:
        return None
    pairs = zip(loops.extents, loops.accesses[0].steps, strict=True)
    axes = [(size, step) for size, step in pairs if size > 1]
    sizes = tuple(size for size, _ in axes)
    stored = tuple(sorted(range(len(axes)), key=lambda axis: -axes[axis][1]))
    steps = [prod(sizes[axis] for axis in stored[i + 1 :]) for i in range(len(stored))]
    if not axes or [axes[axis][1] for axis in stored] != steps:
        return None
    return Conversion(sizes, stored, tuple(range(len(axes))), (0,) * len(axes))
