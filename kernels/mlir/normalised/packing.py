"""How the operands of an op lie for a schedule: as they are, or packed to one form."""

from collections.abc import Sequence
from dataclasses import dataclass

from kernels.mlir.frontend.nest import Dims, Nest, Operand
from kernels.mlir.normalised.parts import Parts, axes_of

Triple = tuple[Dims, Dims, Dims]
"""The dims of A, B and C."""


@dataclass(frozen=True)
class Move:
    """The copy that packs an operand, or unpacks the result.

    Attributes:
        rank: of what is copied, without axes of one element.
        neighbours: elements that lie side by side before and after; 1 where the order of the
            innermost axis changes.
    """

    rank: int
    neighbours: int


@dataclass(frozen=True)
class Packing:
    """The operands as a schedule's steps find them.

    Attributes:
        operands: dims of A, B and C.
        order: the loops; those that are packed come behind the others.
        sizes: for each loop of `Parts.order` its extent where it is packed, else 0; empty where
            nothing is packed.
        turned: for each of A and B that is packed with the reduction first, the order of what is
            packed, by the loops' order; None for the others.
        moves: of A, B and C, as far as packing changes their order.
    """

    operands: Triple
    order: Dims
    sizes: Dims = ()
    turned: tuple[Dims | None, Dims | None] = (None, None)
    moves: tuple[Move | None, ...] = (None, None, None)


def packing(nest: Nest, parts: Parts, turns: tuple[bool, bool]) -> Packing:
    """How operands are packed, if they are.

    Args:
        nest: of the op, with the problem's A and B as its inputs.
        parts: its loops.
        turns: whether A and B have the reduction before their rows and columns.
    """
    first, second, third = nest.a, nest.b, nest.c
    lies = axes_of(nest, first), axes_of(nest, second), axes_of(nest, third)
    wanted = (
        parts.within(parts.rows, reduction_first=turns[0]),
        parts.within(parts.cols, reduction_first=turns[1]),
        parts.result,
    )
    if all(_lies_so(*both, parts) for both in zip(lies, wanted, strict=True)):
        return Packing(lies, parts.order)
    a, b, c = (_packed(*both, parts.fixed) for both in zip(lies, wanted, strict=True))
    return Packing(
        (a, b, c),
        tuple(sorted(parts.order, key=lambda dim: dim not in parts.fixed)),
        tuple(0 if dim in parts.fixed else nest.extents[dim] for dim in parts.order),
        (_turned(parts, parts.rows, turns[0]), _turned(parts, parts.cols, turns[1])),
        tuple(map(_move, (first, second, third), lies, (a, b, c))),
    )


def _lies_so(lies: Dims, wanted: Dims, parts: Parts) -> bool:
    """Whether the loops of the schedule are innermost of an operand, and in the order wanted.

    A convolution's pixels need not be neighbours: they come one by one then.
    """
    count = sum(dim in parts.mains for dim in wanted)
    if parts.fixed and any(dim in parts.mains and dim in parts.rows for dim in wanted):
        count -= 1
    return lies[len(lies) - count :] == wanted[len(wanted) - count :]


def _packed(lies: Dims, wanted: Dims, fixed: frozenset[int]) -> Dims:
    """The dims of an operand once it is packed: those that stay are in front, as they lie."""
    return (*(dim for dim in lies if dim in fixed), *(dim for dim in wanted if dim not in fixed))


def _turned(parts: Parts, own: Dims, turn: bool) -> Dims | None:
    """The order of an input's packed dims, where it is not that of the loops."""
    ordered, wanted = (
        [dim for dim in parts.within(own, reduction_first=first) if dim not in parts.fixed]
        for first in (False, True)
    )
    return tuple(map(ordered.index, wanted)) if turn and ordered != wanted else None


def _move(operand: Operand, before: Dims, packed: Dims) -> Move | None:
    """What packing an operand does; None where it changes nothing."""
    if before == packed:
        return None
    long = [size for size in operand.shape if size > 1]
    return Move(len(long), long[-1] if before[-1] == packed[-1] else 1)


def common_lengths(moves: Sequence[Move | None]) -> dict[int, tuple[int, ...]]:
    """For each rank of some copies how many elements of each lie side by side."""
    found: dict[int, tuple[int, ...]] = {}
    for move in moves:
        if move is not None:
            found[move.rank] = (*found.get(move.rank, ()), move.neighbours)
    return found
