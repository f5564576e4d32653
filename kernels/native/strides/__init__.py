"""Where each element lies: strides of operands in place and packed, for both operations.

The driver and the micro-kernel see a matmul and a convolution alike through this:
a row of the result moves A by a stride, a chunk of the reduction starts at an
offset, and a convolution adds taps.
"""

from tilewise.kernels.native.strides.of_nest import (
    fills,
    is_of_quadrants,
    is_transposed,
    shape_of_stage,
    strides_of,
)
from tilewise.kernels.native.strides.records import Strides

__all__ = ["Strides", "fills", "is_of_quadrants", "is_transposed", "shape_of_stage", "strides_of"]
