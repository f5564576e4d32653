"""How the operands of an op lie for a schedule: as they are, or packed to one form."""

from dataclasses import dataclass

from kernels.mlir.cpu.packs import largest_divisor
from kernels.mlir.frontend.nest import Dims, Nest, Operand
from kernels.mlir.normalised.parts import Parts, axes_of

Triple = tuple[Dims, Dims, Dims]
"""The dims of A, B and C."""


LONGEST_VECTOR = 256
BLOCK = 8
"""Elements of a vector that is copied, and of both sides of a block that is turned, at most."""


@dataclass(frozen=True)
class Move:
    """The copy that packs an operand, or unpacks the result.

    Attributes:
        extents: of what is written, without axes of one element.
        tile: of the copies that become vectors: neighbours that stay neighbours, or a block of
            what is read and of what is written along.
    """

    extents: Dims
    tile: Dims


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
        (
            _move(nest, first, lies[0], a),
            _move(nest, second, lies[1], b),
            _move(nest, third, c, lies[2]),
        ),
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


def _move(nest: Nest, operand: Operand, read: Dims, written: Dims) -> Move | None:
    """The copy of an operand from one order of its axes to another; None where none changes."""
    if read == written:
        return None
    sizes = dict(zip(axes_of(nest, operand), _long_sizes(nest, operand), strict=True))
    tile = dict.fromkeys(written, 1)
    if read[-1] == written[-1]:
        tile[read[-1]] = largest_divisor((sizes[read[-1]],), LONGEST_VECTOR)
    else:
        for dim in (read[-1], written[-1]):
            tile[dim] = largest_divisor((sizes[dim],), BLOCK)
    return Move(tuple(sizes[dim] for dim in written), tuple(tile.values()))


def _long_sizes(nest: Nest, operand: Operand) -> Dims:
    """The sizes of the axes that `axes_of` has the dims of."""
    return tuple(
        size
        for axis, size in zip(operand.axes, operand.shape, strict=True)
        if any(nest.has_length(dim) for dim, _ in axis)
    )
