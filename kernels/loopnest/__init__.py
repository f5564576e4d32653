"""What a schedule means: the loop nest that its steps make, printed and counted."""

from tilewise.kernels.loopnest.counts import Counts, Lengths, blocks_at, count
from tilewise.kernels.loopnest.nest import Copy, Entry, Kernel, Loop, Nest, build

__all__ = [
    "Copy",
    "Counts",
    "Entry",
    "Kernel",
    "Lengths",
    "Loop",
    "Nest",
    "blocks_at",
    "build",
    "count",
]
