"""Operands of a convolution, laid with their channels in blocks."""

from tilewise.kernels.channel_blocks import Blocks
from tilewise.kernels.oracle.operands import Operands, empty_aligned


def laid_in_blocks(operands: Operands, blocks: Blocks) -> Operands:
    """Operands of an nhwc convolution in blocks; those that are not cut are shared.

    Args:
        operands: by role, some of them or all.
        blocks: of its images.
    """
    laid = dict(operands)
    for role, size in (("A", blocks.a), ("C", blocks.c)):
        if size and role in operands:
            n, h, w, c = operands[role].shape
            apart = operands[role].reshape(n, h, w, c // size, size).transpose(0, 3, 1, 2, 4)
            laid[role] = empty_aligned(apart.shape, operands[role].dtype.type)
            laid[role][...] = apart
    return laid
