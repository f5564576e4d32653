"""What fits in this machine."""

import os

from kernels.errors import ProblemError
from kernels.problem import Problem
from kernels.support import working_bytes

GIB = 1024**3
MARGIN_BYTES = 1 * GIB


def physical_memory() -> int:
    """Bytes of memory that the machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_memory(problem: Problem, memory: int | None = None) -> None:
    """Raise unless operands and reference fit in memory beside the system and the service.

    Args:
        problem: what is to be computed.
        memory: bytes of memory; None is this machine's.

    Raises:
        ProblemError: on the field `problem`.
    """
    memory = physical_memory() if memory is None else memory
    needed = working_bytes(problem)
    if needed > memory - MARGIN_BYTES:
        raise ProblemError(
            f"{problem} needs {needed / GIB:,.1f} GiB to be run and checked; "
            f"this machine has {memory / GIB:,.1f} GiB, and {MARGIN_BYTES / GIB:.0f} of them "
            "are kept free"
        )
