"""A problem on a target: its loop nest, extents, operands and arithmetic."""

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import prod
from typing import NamedTuple, Self

from tilewise.kernels.arithmetic import Arithmetic, arithmetic_of, depthwise_vector
from tilewise.kernels.instructions import Form, chosen, instructions
from tilewise.kernels.nest import Nest, Operand, nest_of
from tilewise.kernels.problem import Problem
from tilewise.kernels.target.model import Target
from tilewise.search.space.points import TileKind


class Stored(NamedTuple):
    """Bytes of an operand as the problem stores it: in all, and from one row to the next."""

    total: int
    stride: int


@dataclass(frozen=True)
class Workload:
    """A problem on a target.

    Attributes:
        problem: the product of matrices where schedules begin with the step `fuse`.
        fused: the convolution that the step is applied to; None if there is no such step.
    """

    problem: Problem
    target: Target
    fused: Problem | None = None

    @classmethod
    def of(cls, problem: Problem, target: Target) -> Self:
        """Return the one of a search, which fuses pixels where it can: lines are short."""
        matrices = problem.as_matmul
        if matrices is None or matrices == problem:
            return cls(problem, target)
        return cls(matrices, target, fused=problem)

    @cached_property
    def nest(self) -> Nest:
        """The loop nest of the problem before any step."""
        return nest_of(self.problem)

    @cached_property
    def rows(self) -> int:
        """The extent of the row dim that register tiles cut."""
        return self.nest.extent(self.nest.row)

    @cached_property
    def cols(self) -> int:
        """The extent of the columns."""
        return self.nest.extent(self.nest.col)

    @cached_property
    def depth(self) -> int:
        """The extent of the reduction."""
        return self.nest.extent(self.nest.k)

    @cached_property
    def b(self) -> Operand:
        """What plays B."""
        return self.nest.operand("B")

    @cached_property
    def packs_rows_of_b(self) -> bool:
        """Whether packing B, in a run, reads rows of a matrix from one end to the other."""
        in_rows = self.b.is_contiguous(self.nest.col) and not self.b.is_gathered
        return in_rows and not self.b.is_constant

    @cached_property
    def stored(self) -> dict[str, Stored]:
        """What plays A and B, as it lies in memory."""
        size = self.problem.element.bytes
        named = {role: self.nest.operand(role).name for role in "AB"}
        shapes = {role: self.problem.operand_shapes[name] for role, name in named.items()}
        return {r: Stored(prod(shape) * size, shape[-1] * size) for r, shape in shapes.items()}

    @cached_property
    def has_far_b(self) -> bool:
        """Whether B comes from farther away than L2."""
        return self.is_far(self.stored["B"].total)

    def is_far(self, size: int) -> bool:
        """Return whether so many bytes do not fit in L2 together with the other operands."""
        return 2 * size > self.target.l2_bytes

    @cached_property
    def has_blocks_ahead(self) -> bool:
        """Whether blocks of a far B may be fetched where they lie, chunk of A after chunk of A.

        A chunk of A then stays in L2 while blocks of B pass by. No trial where the last cache is
        near speaks for it.
        """
        return self.target.core.far_l3 is not None and self.has_far_b and self.packs_rows_of_b

    @cached_property
    def lanes(self) -> int:
        """Columns of a vector of the accumulator."""
        if self.nest.group:
            return depthwise_vector(self.problem, self.target).columns
        return self.target.lanes(self.problem.element.name)

    @cached_property
    def arithmetic(self) -> Arithmetic:
        """How elements are multiplied outside split reductions and skinny GEMMs."""
        return self._fastest(Form.OUTER_PRODUCT)

    @cached_property
    def skinny_arithmetic(self) -> Arithmetic:
        """How they are in a skinny GEMM."""
        return self._fastest(Form.SKINNY)

    @cached_property
    def split_arithmetic(self) -> Arithmetic:
        """How they are where the reduction is split."""
        return self._fastest(Form.SPLIT)

    @cached_property
    def tile_arithmetic(self) -> Arithmetic | None:
        """How they are by matrix tiles; None where the target has none for the type.

        Rows of a transposed A are no rows of tiles.
        """
        nest, dtype = self.nest, self.nest.factors
        if nest.group or not nest.operand("A").is_contiguous(nest.k):
            return None
        has_tiles = instructions(dtype, self.target, Form.TILES, self.problem.accuracy)
        return self._fastest(Form.TILES) if has_tiles else None

    def arithmetic_of(self, kind: TileKind) -> Arithmetic:
        """Return how elements are multiplied in register tiles of a kind."""
        if kind == "matrix":
            assert self.tile_arithmetic is not None, "a space offers no such tiles then"
            return self.tile_arithmetic
        if kind == "split":
            return self.split_arithmetic
        return self.skinny_arithmetic if kind == "sweep" else self.arithmetic

    def _fastest(self, form: Form) -> Arithmetic:
        if self.problem.quantised_weights and form is not Form.TILES:
            return arithmetic_of(self.problem, self.target)
        op = chosen(self.nest.factors, self.target, form, self.problem.accuracy)
        return arithmetic_of(self.problem, self.target, form, op)

    @cached_property
    def adds_apart(self) -> bool:
        """Whether a product and its addition are two instructions; the product takes a register."""
        return not (self.problem.element.is_float or self.arithmetic.instruction.adds)

    def divisions(self) -> tuple[str, ...]:
        """Return the ways to divide the result among threads, such as `m=2,n=4`, and none."""
        nest, threads = self.nest, self.target.threads
        kept = {nest.k, *({"ow"} if nest.group else ())}
        dims = [d for d in nest.scheduled if d not in kept and nest.extent(d) > 1]
        whole = [f"{dim}={threads}" for dim in dims]
        planes = [
            f"{first}={parts},{second}={threads // parts}"
            for first, second in combinations(dims, 2)
            for parts in range(2, threads // 2 + 1)
            if threads % parts == 0
        ]
        return ("none", *whole, *planes)
