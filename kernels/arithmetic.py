"""How a dtype is multiplied and accumulated on a target.

The micro-kernel knows *words*: what one splat of A loads and what one lane of B
holds. A word is one element, or as many as the target's dot-product instruction sums
into one accumulator lane (a bf16 pair, an i8 quad). Types without such an instruction
are widened while they are packed, and the micro-kernel then sees plain f32 or i32.
Where B comes from beyond the second cache, and was packed ahead or is used for few rows,
its panels stay as narrow as they are stored; one instruction then widens a vector of them.

Quantised weights stay integers in memory (`WeightOnly`): the word is a block of the reduction.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.instructions import Form, Instruction, instructions
from tilewise.kernels.nest import nest_of
from tilewise.kernels.problem import Problem
from tilewise.kernels.problem.keys import STORED
from tilewise.kernels.problem.weights import QuantisedWeights
from tilewise.kernels.target.model import Target

_NARROW = {"bf16": 2, "f16": 1}
"""Elements of a word of narrow panels: either half of a pair of bf16 widens to an f32."""

WHOLE_BYTES = 64  # of vectors, from which on they widen what narrow panels hold
_ENDS_OF_BLOCK = 6  # instructions that add integer sums of a block to those in f32
FEW_ROWS = 32  # of a result, up to which reading B takes longer than multiplying it


@dataclass(frozen=True)
class Arithmetic:
    """What follows from an instruction and from how panels of B are stored.

    Attributes:
        stored: how B holds an element, by name.
        stored_a: how A does; empty for B's.
        zero: which of A and B have a zero point.
        instruction: what multiplies and adds.
        form: how the micro-kernel feeds it. A skinny GEMM joins words, and widens elements, as it
            loads them; split reductions and depthwise tiles read both factors as they are stored.
        is_narrow: whether panels of B hold stored elements that are widened as they are multiplied,
            those of a word one after another; A's are packed ones.
    """

    stored: str
    instruction: Instruction
    form: Form = Form.OUTER_PRODUCT
    is_narrow: bool = False
    stored_a: str = ""
    zero: str = ""

    def stored_as(self, role: str) -> str:
        """Return how A or B holds an element, by name."""
        return self.stored_a or self.stored if role == "A" else self.stored

    @property
    def accumulator(self) -> str:
        """Return the type of C and of the registers."""
        return self.instruction.c

    @cached_property
    def _reads_stored(self) -> bool:
        return self.form in (Form.SPLIT, Form.DEPTHWISE)

    @cached_property
    def depth(self) -> int:
        """Return the elements of the reduction in a word, taken from A and B at a time."""
        if self._reads_stored:
            return 1
        return _NARROW[self.stored] if self.is_narrow else self.instruction.k

    @cached_property
    def packed(self) -> str:
        """Return the type of elements of panels; another one where packing widens."""
        return self.stored if self._reads_stored else self.instruction.b

    @property
    def in_panels(self) -> str:
        """Return the type of elements of panels of B: the stored one where they are narrow."""
        return self.stored if self.is_narrow else self.packed

    @cached_property
    def word(self) -> str:
        """Return the type of a word of B."""
        if self.depth > 1:
            return f"i{8 * self.depth * size_of(self.in_panels)}"
        return self.in_panels

    @cached_property
    def word_bytes(self) -> int:
        """Return the bytes of a word of B."""
        return size_of(self.packed) * self.depth if self.in_parts else size_of(self.word)

    @cached_property
    def packed_word(self) -> int:
        """Return the packed elements of A that a word is made of."""
        return self.depth

    @property
    def in_parts(self) -> bool:
        """Return whether factors are packed as several parts, whose products are summed."""
        return len(self.instruction.parts) > 1

    @property
    def word_of_a(self) -> str:
        """Return a type of as many bytes as a word of A: of B's the elements can be narrower."""
        if not self.is_narrow:
            return self.word
        return self.packed if self.depth == 1 else "i64"

    @property
    def offset(self) -> int:
        """Return what makes signed elements of A (of B in a skinny GEMM) unsigned when added.

        The first factor of vpdpbusd is unsigned: (a + 128) b summed, less 128 times the column sums
        of B. A skinny GEMM makes B so, and the correction needs A alone.
        """
        return 0 if self._reads_stored else self.instruction.offset(self.stored_as("A"))

    def subtracts(self, role: str) -> bool:
        """Return whether packing subtracts a zero point, as it widens the elements of A or B."""
        return role in self.zero and size_of(self.stored_as(role)) < size_of(self.packed)

    @property
    def moves_zero(self) -> bool:
        """Return whether sums over B correct products of A with its zero point."""
        return "A" in self.zero and not self._reads_stored and not self.subtracts("A")

    @property
    def corrects(self) -> bool:
        """Return whether panels of B have column sums, which correct products of a moved A."""
        return self.offset > 0 or self.moves_zero

    @property
    def multiply_adds(self) -> int:
        """Return the instructions that multiply a word of A with a vector of words of B."""
        return self.depth if self.is_narrow else 1

    @property
    def widens(self) -> bool:
        """Return whether packing changes the element type, so that nothing can be read in place."""
        widens = size_of(self.stored) != size_of(self.packed)
        return widens and self.form is not Form.SKINNY

    @property
    def packs_a(self) -> bool:
        """Return whether A cannot be read in place."""
        return self.widens or self.in_parts or (self.offset > 0 and self.form is not Form.SKINNY)

    @property
    def packs_b(self) -> bool:
        """Return whether B cannot be read in place: a word holds elements of several rows."""
        return self.widens or (self.depth > 1 and self.form is not Form.SKINNY)


@dataclass(frozen=True, kw_only=True)
class WeightOnly(Arithmetic, ABC):
    """How a float A and quantised weights are multiplied, block by block of the reduction.

    A word is a block of at most 128 elements, whose sum is multiplied by one scale of each column.

    Attributes:
        weights: how B is stored.
    """

    weights: QuantisedWeights

    @property
    @abstractmethod
    def products(self) -> int:
        """Return the products of instructions that make up one of an element of A and a code."""

    @property
    def accumulator(self) -> str:
        """Return the type of C."""
        return "f32"

    @cached_property
    def depth(self) -> int:
        """Return the elements of the reduction in a block."""
        return self.weights.block

    @cached_property
    def codes_bytes(self) -> int:
        """Return the bytes of a column's codes in a block."""
        return self.depth * self.weights.bits // 8

    @cached_property
    def word_bytes(self) -> int:
        """Return the bytes of a column in a block: codes, a scale, and a zero point."""
        return self.codes_bytes + size_of(self.weights.scale) + (1 if self.weights.zero else 0)

    @property
    def offset(self) -> int:
        """Return 0: codes in panels are unsigned."""
        return 0

    @property
    def packs_a(self) -> bool:
        """Return True."""
        return True

    @property
    def packs_b(self) -> bool:
        """Return True."""
        return True


@dataclass(frozen=True, kw_only=True)
class SlicedWeights(WeightOnly):
    """Integer products of codes and slices of A.

    In each block a row of A is rounded to integers of 8, 16 or 24 bits with one scale, and cut into
    slices of 8 bits, such as

        a[k] = scale_a * (256 * s0[k] + s1[k]),   -128 <= s < 128

    Sums of products of slices and codes are exact in i32, and one instruction multiplies four codes
    of every column as they come from memory: few rows take the time of reading the weights. That is
    the Ozaki scheme for one of two factors (Ootomo, Ozaki and Yokota, DGEMM on Integer Matrix
    Multiplication Unit, IJHPCA 2024).
    """

    @property
    def products(self) -> int:
        """Return the slices of an element of A."""
        return 1 if self.weights.quantises_a else {"bf16": 2, "f32": 3}[self.stored]

    @property
    def limit(self) -> int:
        """Return the largest integer that elements of A are rounded to.

        Slices hold some more: a quotient that is rounded up must not change the sign of the first.
        """
        return 127 << (8 * (self.products - 1))

    @cached_property
    def packed(self) -> str:
        """Return the type of slices."""
        return "i8"

    @cached_property
    def packed_word(self) -> int:
        """Return the bytes of a row of A in a block: slices, starts of their sums, the scale."""
        return self.products * (self.depth + size_of("i32")) + size_of("f32")

    @property
    def multiply_adds(self) -> int:
        """Return the instructions of a block for a vector of columns, those of its end included."""
        return self.products * self.depth // self.instruction.k + _ENDS_OF_BLOCK


@dataclass(frozen=True, kw_only=True)
class WidenedWeights(WeightOnly):
    """Products of matrix tiles of bf16: codes are widened, and A is one bf16 or the sum of three.

    Both are exact: a code less its zero point has at most 8 bits, and an f32 has three times as
    many. Scales multiply the sums of a block in f32.
    """

    @property
    def products(self) -> int:
        """Return the parts of an element of A."""
        return 1 if self.stored == "bf16" or self.weights.quantises_a else 3

    @cached_property
    def packed(self) -> str:
        """Return the type of parts and of widened codes."""
        return "bf16"

    @cached_property
    def packed_word(self) -> int:
        """Return the elements of a row of A in a block, of all parts."""
        return self.products * self.depth

    @cached_property
    def step(self) -> int:
        """Return the elements of the reduction that one product of tiles sums."""
        return min(self.depth, self.instruction.k * self.instruction.words)

    def widened_bytes(self, depth: int, cols: int) -> int:
        """Return the bytes of widened codes of so many columns and elements of the reduction."""
        return -(-depth // self.depth) * self.depth * cols * size_of(self.packed)


def arithmetic_of(
    problem: Problem,
    target: Target,
    form: Form = Form.OUTER_PRODUCT,
    instruction: str | None = None,
) -> Arithmetic:
    """Return how a form of micro-kernel multiplies and accumulates what a problem is of.

    Args:
        problem: what is computed; where B's panels lie decides whether they are narrow.
        target: where.
        form: of micro-kernel.
        instruction: of `tilewise.kernels.instructions`; by default the one of the target with the
            most products, as in schedules that were stored before they had a step for it.

    Raises:
        LoweringError: the target lacks the instruction.
    """
    nest = nest_of(problem)
    dtype = nest.factors
    found = {one.name: one for one in instructions(dtype, target, form, problem.accuracy)}
    name = instruction or next(iter(found), "")
    if name not in found:
        raise LoweringError(
            f"step 'instruction op={name}': {target.cpu} has {', '.join(found)} for dtype={dtype}"
            "; tune again for this target"
        )
    if weights := problem.quantised_weights:
        kind = WidenedWeights if form is Form.TILES else SlicedWeights
        return kind(problem.dtype, found[name], form, weights=weights)
    may_be_narrow = form is Form.OUTER_PRODUCT and target.vector_bytes == WHOLE_BYTES
    widens = dtype in _NARROW and found[name].b != dtype
    is_narrow = may_be_narrow and widens and _is_far(problem, target)
    a, b = (problem.type_of(nest.operand(role).name) for role in "AB")
    zero = "".join(r for r in "AB" if nest.operand(r).name.lower() in problem.zero)
    return Arithmetic(b, found[name], form, is_narrow, "" if a == b else a, zero)


def _is_far(problem: Problem, target: Target) -> bool:
    """Whether B comes from beyond the second cache, packed ahead or for few rows."""
    nest = nest_of(problem)
    few_rows = not nest.image and nest.extent(nest.row) <= FEW_ROWS
    bytes_of_b = prod(problem.operand_shapes["B"]) * problem.element.accumulator_bytes
    return (few_rows or nest.operand("B").is_constant) and bytes_of_b > target.l2_bytes


class DepthwiseVector(NamedTuple):
    """Vectors of a convolution with few channels in a group.

    Attributes:
        lanes: elements of an accumulator vector.
        columns: columns of C that it has: pixels, or channels of whole groups.
    """

    lanes: int
    columns: int


def depthwise_vector(problem: Problem, target: Target) -> DepthwiseVector:
    """Return the target's vectors, or wider ones that hold a group (two registers each)."""
    lanes, group = target.lanes(problem.element.name), nest_of(problem).group
    if problem.has_channels_first:
        return DepthwiseVector(lanes, lanes)
    lanes = max(lanes, 1 << (group - 1).bit_length())
    return DepthwiseVector(lanes, lanes - lanes % group)


def must_pack(problem: Problem, how: Arithmetic) -> frozenset[str]:
    """Return the factors, by role, that the native lowering cannot read in place, at any depth."""
    if how.form is Form.SPLIT:
        return _must_pack_split(problem)
    nest, packed = nest_of(problem), set[str]()
    if nest.group or how.form is Form.SKINNY:
        return frozenset()
    a, b = nest.operand("A"), nest.operand("B")
    rows_cut_words = not a.is_contiguous(nest.k) or nest.extent(nest.k) % how.depth > 0
    if how.packs_a or (how.depth > 1 and rows_cut_words):
        packed.add("A")
    if how.packs_b or b.is_gathered or not b.is_contiguous(nest.col):
        packed.add("B")
    if problem.is_padded:
        packed.add(nest.image)
    return frozenset(packed)


def _must_pack_split(problem: Problem) -> frozenset[str]:
    """B, unless its columns are contiguous; rows of A are, or no pack makes them so."""
    contiguous = problem.transpose_b or problem.operand_shapes["B"][-1] == 1
    return frozenset() if contiguous else frozenset({"B"})


def size_of(name: str) -> int:
    """Return the bytes of an element type."""
    return STORED[name].bytes
