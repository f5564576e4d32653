"""What a problem needs of a machine; light, so that a service can ask."""

import os
from math import ceil, prod

from tilewise.kernels.errors import ProblemError
from tilewise.kernels.minimal_filtering import outputs_for, tile_filtering
from tilewise.kernels.problem import Conv2d, Problem
from tilewise.kernels.problem.iteration import iteration_space

GIB = 1024**3
MARGIN_BYTES = 1 * GIB
_WIDE = 8  # bytes of a float64


def physical_memory() -> int:
    """Bytes of memory that the machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_memory(problem: Problem, memory: int | None = None) -> None:
    """Raise unless operands and reference fit in memory beside the system and the service.

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
    """Bytes to hold the operands and all that the reference computes from them in float64.

    A and B have a second copy of magnitudes, and the result exists as value, bound, product of
    one tap, and what is being compared. A filter may be transformed as well, first along one side.
    Scripts pad an image ahead, and gather all patches of an nchw image ahead.
    """
    is_conv = isinstance(problem, Conv2d)
    copies = {"A": 2 if is_conv else 4, "B": 2 + _transformed_share(problem), "C": 5, "bias": 1}
    total = problem.bytes
    for name, shape in problem.operand_shapes.items():
        total += copies[name] * _WIDE * prod(shape)
    return total + padded_bytes(problem) + patch_bytes(problem)


def _transformed_share(problem: Problem) -> int:
    """How often minimal filtering has a value of the filter: transformed along a side, and both."""
    if not isinstance(problem, Conv2d) or not (
        outputs := outputs_for((problem.kh, problem.kw), problem.stride)
    ):
        return 0
    filtering = tile_filtering(max(outputs), (problem.kh, problem.kw), problem.stride)
    height, width = filtering.input
    half = max(height * problem.kw, problem.kh * width)
    return ceil((filtering.products + half) / (problem.kh * problem.kw))


def padded_bytes(problem: Problem) -> int:
    """Bytes of the padded image: the reference's, what it cuts from it, and that of scripts.

    The reference of i32 cuts two halves of each tap's view, in float64.
    """
    if not isinstance(problem, Conv2d):
        return 0
    pixels = problem.n * problem.ci * prod(problem.padded)
    return (3 * _WIDE + problem.element.bytes * bool(problem.pad)) * pixels


def patch_bytes(problem: Problem) -> int:
    """Bytes of all patches of an image that scripts gather: every tap's view of it."""
    if not isinstance(problem, Conv2d) or not iteration_space(problem).patches:
        return 0
    taps = problem.ci * problem.kh * problem.kw
    return problem.n * taps * problem.oh * problem.ow * problem.element.bytes
