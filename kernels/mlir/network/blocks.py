"""How long the blocks are in which tensors are packed: a rule, and what is wished for single ops.

A block's length depends on the axis alone, not on the op. The producer of a tensor and its
consumers so pack it alike, and their packs cancel.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

LEAST = 4
"""Blocks are multiples of it: what else divides an axis makes vectors that are taken apart."""


@dataclass(frozen=True)
class OpBlocks:
    """Blocks that are wished for one op, in elements; 0 leaves the axis whole.

    Attributes:
        rows: of a product's rows; no matter to convolutions and pools.
        columns: of the result's channels, or a product's columns.
        depth: of what is summed over: the image's channels.
    """

    rows: int = 0
    columns: int = 0
    depth: int = 0


@dataclass(frozen=True)
class Blocks:
    """The most elements of a block.

    Attributes:
        channels: of channels, columns and depths: a vector's lanes.
        rows: of a product's rows. Whole rows of 0 make packs of activations that move nothing.
        of_ops: blocks of single ops, by their numbers among the module's packable ops, from 1.
    """

    channels: int = 16
    rows: int = 0
    of_ops: Mapping[int, OpBlocks] = field(default_factory=dict)


def block_of(extent: int, most: int) -> int:
    """The largest divisor of an axis that is a multiple of `LEAST` and at most `most`; else 0.

    Blocks that do not divide an axis are padded, and padded packs never cancel.
    """
    sizes = range(LEAST, most + 1, LEAST)
    return max((size for size in sizes if extent % size == 0), default=0)
