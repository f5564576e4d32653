"""What a schedule means: the loop nest that its steps make, printed and counted."""

from kernels.loopnest.counts import Counts, count
from kernels.loopnest.nest import Copy, Kernel, Loop, Nest, build

__all__ = ["Copy", "Counts", "Kernel", "Loop", "Nest", "build", "count"]
