"""The memory that a problem needs, without heavy imports."""

import os
from math import prod

from tilewise.kernels.errors import ProblemError
from tilewise.kernels.nest import nest_of
from tilewise.kernels.problem import STORED, Problem

GIB = 1024**3
MARGIN_BYTES = 1 * GIB
_WIDE = 8  # bytes of a float64


def physical_memory() -> int:
    """Return the bytes of memory that the machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_memory(problem: Problem, memory: int | None = None) -> None:
    """Raise unless operands and reference fit in memory with the system and the service.

    Who searches or times a problem here asks this first. Who reads what is stored does not: its
    kernel may be for a larger machine.

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


def working_bytes(problem: Problem) -> int:
    """Return the bytes of the operands and of what the reference computes of them in float64.

    A and B have a second copy of magnitudes, and the result exists as value, bound, product of
    one tap, and what is being compared; fast algorithms are bounded block by block. Scripts pad an
    image ahead, and gather all patches of an nchw image ahead. Of quantised weights there are also
    the codes, scales and zero points of each element.
    """
    has_image = bool(problem.spatial_axes)
    copies = {"A": 2 if has_image else 4, "B": 5 if problem.quantised_weights else 2, "C": 5}
    total = 0
    for name, shape in problem.operand_shapes.items():
        held = STORED[problem.type_of(name)].bytes
        total += (held + copies.get(name, 1) * _WIDE) * prod(shape)
    return total + padded_bytes(problem) + patch_bytes(problem)


def padded_bytes(problem: Problem) -> int:
    """Return the bytes of padded images: the reference's, its cuts, and those of scripts.

    The reference of i32 cuts two halves of each tap's view, in float64.
    """
    if not problem.spatial_axes:
        return 0
    copies = 3 * _WIDE + problem.element.bytes * problem.is_padded
    return copies * prod(problem.padded_shape)


def patch_bytes(problem: Problem) -> int:
    """Return the bytes of all patches of an image that scripts gather: every tap's view of it."""
    nest = nest_of(problem)
    patches = nest.operand("B")
    if nest.group or not patches.is_gathered:
        return 0
    return prod(map(nest.extent, patches.dims)) * problem.element.bytes
