"""How a dtype is multiplied and accumulated on a target.

The micro-kernel knows *words*: what one splat of A loads and what one lane of B
holds. A word is one element, or as many as the target's dot-product instruction sums
into one accumulator lane (a bf16 pair, an i8 quad). Types without such an instruction
are widened while they are packed, and the micro-kernel then sees plain f32 or i32.
Where B comes from beyond the second cache, and was packed ahead or is used for few rows,
its panels stay as narrow as they are stored; one instruction then widens a vector of them.
"""

from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.problem import Conv2d, Matmul, Problem
from tilewise.kernels.problem.dtypes import DTYPES
from tilewise.kernels.problem.iteration import is_packed_ahead, iteration_space
from tilewise.kernels.target.instructions import DOTS, VDPBF16PS, VPDPBUSD, VPMADDWD, Dot, usable
from tilewise.kernels.target.model import Target


@dataclass(frozen=True)
class Arithmetic:
    """Element types, by name, as stored, as packed, as multiplied, as accumulated.

    Attributes:
        stored: how the operands hold an element.
        packed: how panels hold it; another type where packing widens.
        word: what the multiply-add takes from A and B at a time.
        accumulator: the type of C and of the registers.
        depth: elements of the reduction in a word.
        dot: the dot-product instruction, empty for a multiply and an add.
        offset: whether A is packed with 128 added (u8) and C is corrected by column sums.
        split: whether both factors are vectors along the reduction, each read as it is
            stored; `dot` then sums neighbours in pairs.
        joins: whether words are joined, and elements widened, as they are loaded.
        apart: whether the elements of a word are multiplied one after another: B's, which are
            stored ones, are widened for it, and A's are packed ones.
    """

    stored: str
    packed: str
    word: str
    accumulator: str
    depth: int = 1
    dot: str = ""
    offset: bool = False
    split: bool = False
    joins: bool = False
    apart: bool = False

    @property
    def multiply_adds(self) -> int:
        """Instructions that multiply a word of A with a vector of words of B."""
        return self.depth if self.apart else 1

    @property
    def word_of_a(self) -> str:
        """A type of as many bytes as a word of A: of B's the elements can be narrower."""
        if not self.apart:
            return self.word
        return self.packed if self.depth == 1 else "i64"

    @property
    def widens(self) -> bool:
        """Whether packing changes the element type, so that nothing can be read in place."""
        return self.stored != self.packed and not self.joins

    @property
    def packs_a(self) -> bool:
        """Whether A cannot be read in place."""
        return self.widens or (self.offset and not self.joins)

    @property
    def packs_b(self) -> bool:
        """Whether B cannot be read in place: a word holds elements of several of its rows."""
        return self.widens or (self.depth > 1 and not self.joins)


BF16_DOT = "llvm.x86.avx512bf16.dpbf16ps.512"
I8_DOT = "llvm.x86.avx512.vpdpbusd.512"
I16_DOT = "llvm.x86.avx512.pmaddw.d.512"
_DOTS = {BF16_DOT: VDPBF16PS, I8_DOT: VPDPBUSD, I16_DOT: VPMADDWD}
_SPLIT_DOTS = {VDPBF16PS: BF16_DOT, VPMADDWD: I16_DOT}
FEW_ROWS = 32  # of a result, up to which reading B takes longer than multiplying it
PAIR = 2  # elements of 32 bits of bf16, and those that a lane of a split reduction takes at a time


def arithmetic_of(problem: Problem, target: Target, instruction: str | None = None) -> Arithmetic:
    """That of a problem whose reduction is not split: where B's panels lie decides as well.

    Raises:
        LoweringError: the target lacks the instruction.
    """
    element = problem.element
    bytes_of_b = prod(problem.operand_shapes["B"]) * element.accumulator_bytes
    few_rows = isinstance(problem, Matmul) and problem.m <= FEW_ROWS
    seldom_used = few_rows or is_packed_ahead(problem, "B")
    is_far = seldom_used and bytes_of_b > target.l2_bytes
    return arithmetic(element.name, target, is_far=is_far, instruction=instruction)


def arithmetic(
    dtype: str,
    target: Target,
    split: bool = False,
    is_far: bool = False,
    instruction: str | None = None,
) -> Arithmetic:
    """The arithmetic for a problem's dtype on a target.

    The first factor of vpdpbusd is unsigned: (a + 128) b summed, less 128 times the column sums of
    B. A split reduction has signed pairs instead, and loads that widen, so nothing is packed for
    the arithmetic.

    Args:
        dtype: of the operands.
        target: where.
        split: whether the reduction is.
        is_far: whether B comes from beyond the second cache, packed ahead or for few rows.
        instruction: of `tilewise.kernels.target.instructions`; by default the one of the target
            with the most products, as in schedules that were stored before they had a step for it.

    Raises:
        LoweringError: the target lacks the instruction.
    """
    names = usable(dtype, target, split)
    name = instruction or names[0]
    if name not in names:
        raise LoweringError(
            f"step 'instruction op={name}': {target.cpu} has {', '.join(names)} for dtype={dtype}"
            "; tune again for this target"
        )
    accumulator = DTYPES[dtype].accumulator
    if split:
        return Arithmetic(
            dtype, dtype, dtype, accumulator, dot=_SPLIT_DOTS.get(name, ""), split=True
        )
    whole = target.vector_bytes == 64
    if name == VDPBF16PS:
        return Arithmetic(dtype, dtype, "i32", accumulator, 2, BF16_DOT)
    if name == VPDPBUSD:
        return Arithmetic(dtype, dtype, "i32", accumulator, 4, I8_DOT, offset=True)
    if dtype == "bf16" and whole and is_far:
        return Arithmetic(dtype, accumulator, "i32", accumulator, PAIR, apart=True)
    if dtype == "f16" and whole and is_far:
        return Arithmetic(dtype, accumulator, dtype, accumulator, apart=True)
    return Arithmetic(dtype, accumulator, accumulator, accumulator)


def dot_of(how: Arithmetic) -> Dot | None:
    """Return the dot product that an arithmetic uses, None for a multiply and an add."""
    return DOTS[_DOTS[how.dot]] if how.dot else None


def sweep_arithmetic(dtype: str, target: Target, instruction: str | None = None) -> Arithmetic:
    """That of products in words, which a sweep joins of rows of B as they lie.

    vpdpbusd has B unsigned here, where panels of other kernels make A so; the correction then needs
    A alone.
    """
    return replace(arithmetic(dtype, target, instruction=instruction), joins=True)


def window_arithmetic(dtype: str) -> Arithmetic:
    """That of a convolution with few channels in a group: elements are widened in registers."""
    return Arithmetic(dtype, dtype, dtype, DTYPES[dtype].accumulator)


class WindowLanes(NamedTuple):
    """Vectors of a convolution with few channels in a group.

    Attributes:
        lanes: elements of an accumulator vector.
        columns: columns of C that it has: pixels, or channels of whole groups.
    """

    lanes: int
    columns: int


def window_lanes(problem: Conv2d, target: Target) -> WindowLanes:
    """The target's vectors, or wider ones that hold a group; LLVM makes two registers of such."""
    lanes, group = target.lanes(problem.element.name), problem.co // problem.groups
    if problem.has_channels_first:
        return WindowLanes(lanes, lanes)
    lanes = max(lanes, 1 << (group - 1).bit_length())
    return WindowLanes(lanes, lanes - lanes % group)


def must_pack(problem: Problem, how: Arithmetic) -> frozenset[str]:
    """The factors, by role, that the native lowering cannot read in place, at any depth."""
    if how.split:
        return _must_pack_split(problem)
    packed = set()
    space = iteration_space(problem)
    if space.spans_groups or how.joins:
        return frozenset()
    transposed_a = problem.has_transposed_a
    is_filter = space.image == "B"
    row = space.extent(space.stream) if is_filter else problem.operand_shapes["A"][-1]
    if how.packs_a or (how.depth > 1 and (transposed_a or row % how.depth)):
        packed.add("A")
    if how.packs_b or problem.has_transposed_b:
        packed.add("B")
    if isinstance(problem, Conv2d) and problem.pad:
        packed.add(space.image)
    if space.patches:
        packed.add("B")
    return frozenset(packed)


def _must_pack_split(problem: Problem) -> frozenset[str]:
    """B, unless its columns are contiguous; rows of A are, or no pack makes them so."""
    contiguous = problem.has_transposed_b or problem.operand_shapes["B"][-1] == 1
    return frozenset() if contiguous else frozenset({"B"})


def size_of(name: str) -> int:
    """Bytes of an element type."""
    return DTYPES[name].bytes
