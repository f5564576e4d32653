"""How each op of a module is packed: a block for each of its loops, an order for each operand.

Images become [image, channels, pixels, block]. Weights become [columns, depth, taps, depth of a
block, columns of a block], as a panel kernel reads them. Channels of a pool are independent, as in
a depthwise convolution. A block's size depends on the axis alone, so that producers and consumers
pack a tensor alike and their packs cancel.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewise.kernels.mlir.frontend.nest import Dims, NestOperand, NestRefusedError, slides

LEAST = 4
"""Blocks are multiples of it: vectors of other lengths are split up."""


@dataclass(frozen=True)
class OpBlocks:
    """Blocks requested for one op, in elements; 0 leaves the axis whole.

    `rows` matter to matmuls alone; `columns` are the result's channels, `depth` the image's.
    """

    rows: int = 0
    columns: int = 0
    depth: int = 0


@dataclass(frozen=True)
class Blocks:
    """The most elements of a block.

    Attributes:
        channels: of channels, columns and depths; a vector's lanes.
        rows: of a matmul; 0 leaves rows whole, and packs of activations move nothing.
        of_ops: blocks of single ops by their number among packable ops, from 1.
    """

    channels: int = 16
    rows: int = 0
    of_ops: Mapping[int, OpBlocks] = field(default_factory=dict)


def block_of(extent: int, most: int) -> int:
    """Return the largest multiple of `LEAST` up to `most` that divides an axis, else 0.

    Other blocks would be padded, and padded packs never cancel.
    """
    sizes = range(LEAST, most + 1, LEAST)
    return max((size for size in sizes if extent % size == 0), default=0)


@dataclass(frozen=True)
class OpShape:
    """A packable op.

    Attributes:
        number: among all ops of its name in the module, from 0.
        inputs: the first two operands.
        has_weights: whether the second operand is known when the model is loaded.
        is_pool: whether only the size of the second operand, a window, matters.
    """

    name: str
    number: int
    where: str
    extents: Dims
    inputs: tuple[NestOperand, NestOperand]
    result: NestOperand
    has_weights: bool = False
    is_pool: bool = False

    @property
    def sliding(self) -> frozenset[int]:
        """The loops along which a window moves over the first input, and those over the window."""
        axes = self.inputs[0].axes
        return frozenset(dim for axis in axes if slides(axis) for dim, _ in axis)


@dataclass(frozen=True)
class AxisOrder:
    """The order of an operand's packed axes; both parts are empty if packing leaves it.

    `outer` is the plain axis of each axis outside of blocks, `inner` the block of each axis inside.
    """

    outer: Dims = ()
    inner: Dims = ()

    @property
    def is_there(self) -> bool:
        """Whether there is nothing to do."""
        return not self.outer and not self.inner


@dataclass(frozen=True)
class PackedOp:
    """An op with a block size for each loop, 0 for none, and the orders of inputs and result."""

    op: OpShape
    sizes: Dims
    orders: tuple[AxisOrder, AxisOrder, AxisOrder]


def packed(op: OpShape, blocks: Blocks, wished: OpBlocks | None = None) -> PackedOp:
    """Return how an op is packed by the rule, or as requested.

    Raise RefusedError if it cannot be packed, or the request does not fit.
    """
    if wished is None and not (op.has_weights or op.sliding):
        raise NestRefusedError(
            "multiplies two tensors that every run computes: packs would not pay"
        )
    roles = _roles(op)
    sizes = [0] * len(op.extents)
    for name, dims in roles.items():
        # Of several loops with one role the innermost is blocked.
        for dim in dims[-1:]:
            sizes[dim] = _block(op, dim, name, blocks, wished)
    if any(sizes[dim] for name in ("columns", "depth") for dim in roles.get(name, ())):
        for dim in roles.get("channels", ()):  # those are groups of channels
            sizes[dim] = 0
    if not any(sizes):
        raise NestRefusedError(_why_plain(op, roles))
    return PackedOp(op, tuple(sizes), _orders(op, tuple(sizes)))


def _block(op: OpShape, dim: int, part: str, blocks: Blocks, wished: OpBlocks | None) -> int:
    extent = op.extents[dim]
    if wished is None:
        return block_of(extent, blocks.rows if part == "rows" else blocks.channels)
    size = {"rows": wished.rows, "depth": wished.depth}.get(part, wished.columns)
    if size and extent % size:
        raise NestRefusedError(
            f"has {part} of {extent}, which blocks of {size} do not divide; "
            "give a divisor, or 0 to leave them whole"
        )
    return size


def _roles(op: OpShape) -> dict[str, Dims]:
    """Return the loops that may be blocked, by role."""
    first, second, result = (_plain(one) for one in (*op.inputs, op.result))
    if op.is_pool:
        return {"channels": tuple(dim for dim in first if dim in result)[1:]}
    both = {
        "columns": [dim for dim in result if dim in second and dim not in first],
        "depth": [dim for dim in second if dim in first and dim not in result],
    }
    if not op.sliding:
        both["rows"] = [dim for dim in result if dim in first and dim not in second]
    else:
        both["channels"] = [dim for dim in result if dim in first and dim in second]
    return {name: tuple(dims) for name, dims in both.items()}


def _plain(operand: NestOperand) -> Dims:
    """Return the loops that index an axis of an operand alone, in the axes' order."""
    return tuple(axis[0][0] for axis in operand.axes if len(axis) == 1 and axis[0][1] == 1)


def _why_plain(op: OpShape, roles: dict[str, Dims]) -> str:
    found = ", ".join(f"{name} {op.extents[dims[-1]]}" for name, dims in roles.items() if dims)
    return (
        f"has no axis that blocks divide ({found})" if found else "has no channels, rows or depth"
    )


def _orders(op: OpShape, sizes: Dims) -> tuple[AxisOrder, AxisOrder, AxisOrder]:
    first, second = op.inputs
    if op.is_pool:
        weights = AxisOrder()
    elif op.has_weights or op.sliding:
        weights = _order(second, _panel_axes(op, sizes), _panel_blocks(op, sizes))
    else:
        weights = _order(second, _channels_first(op, second), _as_axes(second, sizes))
    a, c = (
        _order(one, _channels_first(op, one), _as_axes(one, sizes)) for one in (first, op.result)
    )
    return a, weights, c


def _order(operand: NestOperand, outer: Dims, inner: Dims) -> AxisOrder:
    """Return the change from packing's order (axes as before, blocks by loop) to the wanted one."""
    left = sorted(inner)
    if not left:
        return AxisOrder()
    return AxisOrder(
        outer if outer != tuple(range(len(operand.axes))) else (),
        tuple(map(left.index, inner)) if list(inner) != left else (),
    )


def _as_axes(operand: NestOperand, sizes: Dims) -> Dims:
    """Return the blocked loops of an operand in the order of its axes."""
    return tuple(dim for dim in _plain(operand) if sizes[dim])


def _channels_first(op: OpShape, operand: NestOperand) -> Dims:
    """Return the axes with those along which windows move last."""
    return tuple(
        sorted(
            range(len(operand.axes)),
            key=lambda i: any(dim in op.sliding for dim, _ in operand.axes[i]),
        )
    )


def _panel_axes(op: OpShape, sizes: Dims) -> Dims:
    """Return the axes of weights: those of the result first, then blocked ones, then taps."""
    second, result = op.inputs[1], _plain(op.result)
    axes = range(len(second.axes))

    def place(i: int) -> tuple[bool, bool]:
        dim = second.axes[i][0][0] if second.axes[i] else -1
        is_summed = dim not in result
        return is_summed, is_summed and not (dim >= 0 and sizes[dim])

    return tuple(sorted(axes, key=place))


def _panel_blocks(op: OpShape, sizes: Dims) -> Dims:
    """Return the blocked loops of weights: the depth first, so that columns are contiguous."""
    result = _plain(op.result)
    return tuple(sorted(_as_axes(op.inputs[1], sizes), key=lambda dim: dim in result))
