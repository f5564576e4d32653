"""What a space and its model know of a problem on a target: its dims, and how its factors lie."""

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import prod
from typing import NamedTuple

from tilewise.kernels.arithmetic import Arithmetic, arithmetic_of, window_lanes
from tilewise.kernels.instructions import WITH_CHOICE, Form, chosen
from tilewise.kernels.problem import Conv2d, Problem
from tilewise.kernels.problem.iteration import (
    IterationSpace,
    is_packed_ahead,
    is_packed_by_rows,
    iteration_space,
)
from tilewise.kernels.schedule import Instruction, Step
from tilewise.kernels.target.model import Target


class Stored(NamedTuple):
    """An operand as the problem stores it.

    Attributes:
        total: bytes of it.
        stride: bytes from one row to the next.
        is_packed_ahead: whether it is packed before the run that is timed.
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


@dataclass(frozen=True)
class Workload:
    """A problem on a target."""

    problem: Problem
    target: Target

    @cached_property
    def dims(self) -> IterationSpace:
        """The problem's iteration space."""
        return iteration_space(self.problem)

    @cached_property
    def extents(self) -> dict[str, int]:
        """The extent of each dim."""
        return dict(self.dims.extents)

    @cached_property
    def stored(self) -> dict[str, Stored]:
        """What plays A and B, as it lies in memory."""
        return {role: Stored.of(self.problem, role) for role in ("A", "B")}

    @cached_property
    def has_far_b(self) -> bool:
        """Whether B comes from farther away than L2."""
        return 2 * self.stored["B"].total > self.target.l2_bytes

    @cached_property
    def has_blocks_ahead(self) -> bool:
        """Whether blocks of a far B may be fetched where they lie, chunk of A after chunk of A.

        A chunk of A then stays in L2 while blocks of B pass by. No trial where the last cache is
        near speaks for it.
        """
        by_rows = is_packed_by_rows(self.problem) and not self.dims.patches
        is_far = self.target.core.far_l3 is not None and self.has_far_b
        return is_far and by_rows and not self.stored["B"].is_packed_ahead

    @cached_property
    def lanes(self) -> int:
        """Columns of a vector of the accumulator."""
        if isinstance(self.problem, Conv2d) and self.dims.spans_groups:
            return window_lanes(self.problem, self.target).columns
        return self.target.lanes(self.problem.element.name)

    @cached_property
    def arithmetic(self) -> Arithmetic:
        """How elements are multiplied where the reduction is neither split nor swept."""
        return self._fastest(Form.OUTER_PRODUCT)

    @cached_property
    def swept_arithmetic(self) -> Arithmetic:
        """How they are where rows of B are swept."""
        return self._fastest(Form.SWEEP)

    @cached_property
    def split_arithmetic(self) -> Arithmetic:
        """How they are where the reduction is split."""
        return self._fastest(Form.SPLIT)

    def _fastest(self, form: Form) -> Arithmetic:
        op = chosen(self.problem.element.name, self.target, form)
        return arithmetic_of(self.problem, self.target, form, op)

    def instruction_steps(self, how: Arithmetic) -> list[Step]:
        """The step that names the instruction, where processors have several for the type."""
        has_choice = self.problem.element.name in WITH_CHOICE
        return [Instruction(how.instruction.name)] if has_choice else []

    @cached_property
    def adds_apart(self) -> bool:
        """Whether a product and its addition are two instructions; the product takes a register."""
        return not (self.problem.element.is_float or self.arithmetic.instruction.adds)

    def divisions(self) -> tuple[str, ...]:
        """Ways to divide the result among the threads, as `n=2` or `m=2,n=4`; and not to."""
        threads, whole_lines = self.target.threads, self.dims.spans_groups
        kept = {self.dims.stream, *({"ow"} if whole_lines else ())}
        dims = [d for d in self.dims.dims if d not in kept and self.extents[d] > 1]
        whole = [f"{dim}={threads}" for dim in dims]
        planes = [
            f"{first}={parts},{second}={threads // parts}"
            for first, second in combinations(dims, 2)
            for parts in range(2, threads // 2 + 1)
            if threads % parts == 0
        ]
        return ("none", *whole, *planes)
