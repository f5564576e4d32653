"""What decides a driver's source: everything about a schedule but its sizes."""

from dataclasses import dataclass

from tilewise.kernels.arithmetic import Arithmetic
from tilewise.kernels.loopnest import Nest
from tilewise.kernels.native.strides import Strides
from tilewise.kernels.problem import Problem
from tilewise.kernels.problem.iteration import IterationSpace, is_packed_ahead
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.steps.strassen import has_strided_rows


@dataclass(frozen=True)
class Structure:
    """A driver's structure.

    Attributes:
        nest: its loops and packs; their steps are not looked at.
        packs_a, packs_b: whether the micro-kernel reads panels.
        is_ahead: whether B is packed before the driver runs.
        fills: whether the micro-kernel packs panels of B in passing.
        prefetches: whether it fetches rows of B's next block, which is to be packed or read.
        fetches_panels: whether it fetches panels of B, packed ahead or transformed, that lie one
            behind the other.
        interleaves: whether a sweep's chunk has rows of several parts of the reduction.
        writes_past_caches: whether the result goes past the caches where it lies aligned.
        a_transposed, b_transposed: whether the reduction is not the contiguous dim of A, or is
            that of B.
        joins: whether a word holds several elements.
        corrects: whether panels of B have column sums behind them.
        bias_dims: the dims that move the bias.
        has_quadrants: whether the products are of sums of quadrants.
        has_strided_rows: whether rows of their A are pixels that a stride leaves.
    """

    nest: Nest
    packs_a: bool
    packs_b: bool
    is_ahead: bool
    fills: bool
    prefetches: bool
    fetches_panels: bool
    interleaves: bool
    writes_past_caches: bool
    a_transposed: bool
    b_transposed: bool
    joins: bool
    corrects: bool
    bias_dims: tuple[str, ...]
    has_quadrants: bool = False
    has_strided_rows: bool = False

    @classmethod
    def of(
        cls, problem: Problem, schedule: Schedule, nest: Nest, strides: Strides, how: Arithmetic
    ) -> "Structure":
        """That of `schedule` on `problem`, with the loops of `nest`."""
        is_ahead = is_packed_ahead(problem, "B", nest.space) and schedule.packs("B")
        in_panels = is_ahead or schedule.transforms
        return cls(
            nest=nest,
            packs_a=schedule.packs("A"),
            packs_b=schedule.packs("B"),
            is_ahead=is_ahead,
            fills=strides.words.filled_row > 0,
            prefetches=schedule.prefetches and not in_panels,
            fetches_panels=schedule.prefetches and in_panels,
            interleaves=schedule.streams > 1,
            writes_past_caches=schedule.writes_past_caches,
            a_transposed=strides.a.is_transposed,
            b_transposed=strides.b.is_transposed,
            joins=how.depth > 1,
            corrects=how.offset > 0,
            bias_dims=tuple(strides.bias),
            has_quadrants=schedule.strassen is not None,
            has_strided_rows=schedule.strassen is not None and has_strided_rows(problem),
        )

    @property
    def space(self) -> IterationSpace:
        """The dims and their roles."""
        return self.nest.space

    @property
    def is_conv(self) -> bool:
        """Whether A is an image."""
        return self.space.image == "A"

    @property
    def is_parallel(self) -> bool:
        """Whether several threads run it."""
        return len(self.nest.parts) > 1

    def lead(self, operand: str) -> tuple[str, ...]:
        """The dims of `lead` that move an operand."""
        return tuple(d for d in self.space.lead if d in self.space.operand_dims[operand])
