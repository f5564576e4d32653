"""How the factors of a problem lie in memory."""

from math import prod
from typing import NamedTuple

from kernels.problem import Problem
from kernels.problem.iteration import is_packed_ahead, iteration_space


class Stored(NamedTuple):
    """An operand as the problem stores it.

    Attributes:
        total: bytes of it.
        stride: bytes from one row to the next.
        is_packed_ahead: whether its pack is no part of a run.
    """

    total: int
    stride: int
    is_packed_ahead: bool

    @classmethod
    def of(cls, problem: Problem, role: str) -> "Stored":
        """What plays A or B."""
        shape = problem.operand_shapes[iteration_space(problem).operand(role)]
        size = problem.element.bytes
        return cls(prod(shape) * size, shape[-1] * size, is_packed_ahead(problem, role))
