"""The speed that no code on a processor exceeds, from the width of its multiply-add units.

It judges what others report of machines that nobody here has measured. A measured peak is lower.
"""

from tilewise.kernels.problem.keys import DTYPES
from tilewise.kernels.target.cores import core_of

CLOCK_GHZ = 5.5
"""Above the sustained clock of every processor in the table of cores."""

DEPTH = {"bf16": 2, "f16": 2, "i8": 4}
"""Elements that the widest dot-product instruction sums into a lane; 1 for other types."""


def ceiling_gflops(cpu: str, dtype: str, threads: int) -> float:
    """Return the multiply-adds of vector instructions in GFLOP/s (two operations each)."""
    core, _ = core_of(cpu)
    lanes = core.multiply_adds * core.multiply_add_bytes / DTYPES[dtype].accumulator_bytes
    return 2 * lanes * DEPTH.get(dtype, 1) * CLOCK_GHZ * threads


def tile_ceiling_gflops(cpu: str, dtype: str, threads: int) -> float:
    """Return the ceiling of other libraries, which may use matrix instructions."""
    core, _ = core_of(cpu)
    tiles = 2 * core.matrix_lanes * DEPTH.get(dtype, 0) * CLOCK_GHZ * threads
    return max(ceiling_gflops(cpu, dtype, threads), tiles)
