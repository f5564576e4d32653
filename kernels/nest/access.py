"""Operands as accesses: which stored element each point of the iteration space reads.

Each stored axis of an operand is indexed by a sum of terms `scale * (i // div % mod)` over dims,
plus an offset. Layout, transposition, groups, stride, dilation, padding and im2col are stated so
once (`tilewise.kernels.nest.problems`); strides, contiguity and halos follow.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property


class Role(Enum):
    """What a dim is to the product C[row, col] += A[row, k] * B[k, col]."""

    LEAD = "lead"
    """Of independent products, visited one at a time: batch, groups, images of nchw."""
    POINT = "point"
    """Of independent products of transformed operands, all of one tile."""
    ROW = "row"
    COL = "col"
    K = "k"
    """The reduction that can be cut in k-blocks."""
    TAP = "tap"
    """Filter positions: a reduction that is never cut."""


@dataclass(frozen=True)
class Dim:
    """A dim of the iteration space; one that is `single` is visited one at a time when tiled."""

    name: str
    extent: int
    role: Role
    single: bool = False


@dataclass(frozen=True)
class Term:
    """`scale * (i // div % mod)` for the position `i` along a dim; no remainder if `mod` is 0."""

    dim: str
    scale: int = 1
    div: int = 1
    mod: int = 0


@dataclass(frozen=True)
class Axis:
    """An axis of an operand as it is stored: its size, and the sum that indexes it."""

    size: int
    terms: tuple[Term, ...]
    offset: int = 0

    def indexes(self, dim: str) -> bool:
        """Return whether a dim indexes the axis."""
        return any(term.dim == dim for term in self.terms)

    def bounds(self, lengths: Mapping[str, int]) -> tuple[int, int]:
        """Return the least and largest position of a block of so many of each dim, from 0 on."""
        largest = self.offset
        for term in self.terms:
            last = (lengths[term.dim] - 1) // term.div
            largest += term.scale * (min(last, term.mod - 1) if term.mod else last)
        return self.offset, largest


@dataclass(frozen=True)
class Operand:
    """An operand as an access: what each of its stored axes is indexed by.

    Positions outside an axis read zero: the padding of an image.

    Attributes:
        role: A has the rows, B the columns; C and bias are what they are.
        name: the problem's own name of it.
        axes: as stored, the contiguous one last.
        is_constant: whether it is the same in every run, so that a stage of it can be made ahead.
    """

    role: str
    name: str
    axes: tuple[Axis, ...]
    is_constant: bool = False

    @cached_property
    def dims(self) -> frozenset[str]:
        """Return the dims that index it."""
        return frozenset(term.dim for axis in self.axes for term in axis.terms)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape as stored, with axes merged that one dim indexes."""
        return tuple(axis.size for axis in self.axes)

    @property
    def is_gathered(self) -> bool:
        """Return whether quotients and remainders of a dim index it, as patches of an image."""
        return any(t.div > 1 or t.mod for axis in self.axes for t in axis.terms)

    def is_contiguous(self, dim: str) -> bool:
        """Return whether `dim` indexes the contiguous axis, whatever the extents are."""
        return any(term.dim == dim for term in self.axes[-1].terms)

    def stride(self, dim: str) -> int | None:
        """Return the elements between neighbours along `dim`; None where it is gathered."""
        total, size = 0, 1
        for axis in reversed(self.axes):
            for term in (t for t in axis.terms if t.dim == dim):
                if term.div > 1 or term.mod:
                    return None
                total += term.scale * size
            size *= axis.size
        return total

    def scale(self, dim: str) -> int:
        """Return by how much a step along `dim` moves the axis that it indexes; 1 elsewhere."""
        return next((t.scale for axis in self.axes for t in axis.terms if t.dim == dim), 1)

    def is_padded(self, lengths: Mapping[str, int]) -> bool:
        """Return whether a block of so many of each dim, from 0 on, reads outside of it."""
        bounds = [axis.bounds(lengths) for axis in self.axes]
        return any(
            low < 0 or high >= a.size for a, (low, high) in zip(self.axes, bounds, strict=True)
        )
