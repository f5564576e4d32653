"""The speed that no code on a processor exceeds, from the width of its multiply-add units.

It judges what others report of machines that nobody here has measured. A measured peak is lower.
"""

from tilewise.kernels.problem.dtypes import DTYPES
from tilewise.kernels.target.cores import core_of, is_golden_cove_server

CLOCK_GHZ = 5.5
"""Above the sustained clock of every processor in the table of cores."""

DEPTH = {"bf16": 2, "f16": 2, "i8": 4}
"""Elements that the widest dot-product instruction sums into a lane; 1 for other types."""

TILE_OPERATIONS = {"bf16": 1024, "f16": 1024, "i8": 2048}
"""Operations of a cycle of AMX, on the servers that have it."""


def ceiling_gflops(cpu: str, dtype: str, threads: int) -> float:
    """Return the multiply-adds of vector instructions in GFLOP/s (two operations each)."""
    core, _ = core_of(cpu)
    element = DTYPES[dtype]
    lanes = core.multiply_add_bytes / element.accumulator_bytes
    operations = 2 * core.multiply_adds * lanes * DEPTH.get(dtype, 1)
    return operations * CLOCK_GHZ * threads


def tile_ceiling_gflops(cpu: str, dtype: str, threads: int) -> float:
    """Return the ceiling of other libraries, which may use matrix instructions."""
    vectors = ceiling_gflops(cpu, dtype, threads)
    if not is_golden_cove_server(cpu):
        return vectors
    return max(vectors, TILE_OPERATIONS.get(dtype, 0) * CLOCK_GHZ * threads)
