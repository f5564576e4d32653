"""How each op of a module is packed: a block for each of its loops, the order of each operand.

Images become [image, channels, pixels, block], whatever order they had. Weights lie as a panel
kernel reads them: [columns, depth, taps, depth of a block, columns of a block]. Each channel of a
pool is by itself, as in a depthwise convolution. A block's length depends on the axis alone, not on
the op: the producer of a tensor and its consumers pack it alike, and their packs cancel.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewise.kernels.mlir.frontend.nest import Dims, Operand, RefusedError, slides

LEAST = 4
"""Blocks are multiples of it: what else divides an axis makes vectors that are taken apart."""


@dataclass(frozen=True)
class OpBlocks:
    """Blocks that are wished for one op, in elements; 0 leaves the axis whole.

    Attributes:
        rows: of a product's rows; no matter to convolutions and pools.
        columns: of the result's channels, or a product's columns.
        depth: of what is summed over: the image's channels.
    """

    rows: int = 0
    columns: int = 0
    depth: int = 0


@dataclass(frozen=True)
class Blocks:
    """The most elements of a block.

    Attributes:
        channels: of channels, columns and depths: a vector's lanes.
        rows: of a product's rows. Whole rows of 0 make packs of activations that move nothing.
        of_ops: blocks of single ops, by their numbers among the module's packable ops, from 1.
    """

    channels: int = 16
    rows: int = 0
    of_ops: Mapping[int, OpBlocks] = field(default_factory=dict)


def block_of(extent: int, most: int) -> int:
    """The largest divisor of an axis that is a multiple of `LEAST` and at most `most`; else 0.

    Blocks that do not divide an axis are padded, and padded packs never cancel.
    """
    sizes = range(LEAST, most + 1, LEAST)
    return max((size for size in sizes if extent % size == 0), default=0)


@dataclass(frozen=True)
class OpShape:
    """An op that may be packed, as far as packing asks.

    Attributes:
        name: such as `linalg.matmul`.
        number: among all ops of its name in the module, from 0.
        extents: of its loops.
        inputs: the first two operands.
        result: what it makes.
        has_weights: whether the second operand is known when the model is loaded.
        is_pool: whether the second operand is a window of which the size alone counts.
    """

    name: str
    number: int
    where: str
    extents: Dims
    inputs: tuple[Operand, Operand]
    result: Operand
    has_weights: bool = False
    is_pool: bool = False

    @property
    def sliding(self) -> frozenset[int]:
        """The loops along which a window moves over the first input, and those over the window."""
        axes = self.inputs[0].axes
        return frozenset(dim for axis in axes if slides(axis) for dim, _ in axis)


@dataclass(frozen=True)
class Order:
    """The order of an operand's packed axes; both empty where packing leaves the wanted one.

    Attributes:
        outer: for each axis outside of blocks the plain axis that it counts.
        inner: for each axis within blocks which of the blocks it was.
    """

    outer: Dims = ()
    inner: Dims = ()

    @property
    def is_there(self) -> bool:
        """Whether there is nothing to do."""
        return not self.outer and not self.inner


@dataclass(frozen=True)
class PackedOp:
    """How an op is packed.

    Attributes:
        sizes: for each of its loops the elements of a block, 0 for none.
        orders: of its two inputs and its result.
    """

    op: OpShape
    sizes: Dims
    orders: tuple[Order, Order, Order]


def packed(op: OpShape, blocks: Blocks, wished: OpBlocks | None = None) -> PackedOp:
    """How an op is packed by a rule, or as is wished for it.

    Raises:
        RefusedError: it cannot be packed, or what is wished does not fit; the message says why.
    """
    if wished is None and not (op.has_weights or op.sliding):
        raise RefusedError("multiplies two tensors that every run computes: packs would not pay")
    roles = _roles(op)
    sizes = [0] * len(op.extents)
    for name, dims in roles.items():
        # Of several loops that play one part the innermost is blocked.
        for dim in dims[-1:]:
            sizes[dim] = _block(op, dim, name, blocks, wished)
    if any(sizes[dim] for name in ("columns", "depth") for dim in roles.get(name, ())):
        for dim in roles.get("channels", ()):  # those are groups of channels
            sizes[dim] = 0
    if not any(sizes):
        raise RefusedError(_why_plain(op, roles))
    return PackedOp(op, tuple(sizes), _orders(op, tuple(sizes)))


def _block(op: OpShape, dim: int, part: str, blocks: Blocks, wished: OpBlocks | None) -> int:
    extent = op.extents[dim]
    if wished is None:
        return block_of(extent, blocks.rows if part == "rows" else blocks.channels)
    size = {"rows": wished.rows, "depth": wished.depth}.get(part, wished.columns)
    if size and extent % size:
        raise RefusedError(
            f"has {part} of {extent}, which blocks of {size} do not divide; "
            "give a divisor, or 0 to leave them whole"
        )
    return size


def _roles(op: OpShape) -> dict[str, Dims]:
    """The loops that may be blocked, by what they do."""
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


def _plain(operand: Operand) -> Dims:
    """The loops at which an operand is read, each at an axis of its own, in the axes' order."""
    return tuple(axis[0][0] for axis in operand.axes if len(axis) == 1 and axis[0][1] == 1)


def _why_plain(op: OpShape, roles: dict[str, Dims]) -> str:
    told = ", ".join(f"{name} {op.extents[dims[-1]]}" for name, dims in roles.items() if dims)
    return f"has no axis that blocks divide ({told})" if told else "has no channels, rows or depth"


def _orders(op: OpShape, sizes: Dims) -> tuple[Order, Order, Order]:
    first, second = op.inputs
    if op.is_pool:
        weights = Order()
    elif op.has_weights or op.sliding:
        weights = _order(second, _panel_axes(op, sizes), _panel_blocks(op, sizes))
    else:
        weights = _order(second, _channels_first(op, second), _as_axes(second, sizes))
    a, c = (
        _order(one, _channels_first(op, one), _as_axes(one, sizes)) for one in (first, op.result)
    )
    return a, weights, c


def _order(operand: Operand, outer: Dims, inner: Dims) -> Order:
    """What makes a wanted order of the one that packing leaves: axes as before, blocks by loop."""
    left = sorted(inner)
    if not left:
        return Order()
    return Order(
        outer if outer != tuple(range(len(operand.axes))) else (),
        tuple(map(left.index, inner)) if list(inner) != left else (),
    )


def _as_axes(operand: Operand, sizes: Dims) -> Dims:
    """The blocked loops of an operand in the order of its axes."""
    return tuple(dim for dim in _plain(operand) if sizes[dim])


def _channels_first(op: OpShape, operand: Operand) -> Dims:
    """The axes with those along which windows move behind the others."""
    return tuple(
        sorted(
            range(len(operand.axes)),
            key=lambda i: any(dim in op.sliding for dim, _ in operand.axes[i]),
        )
    )


def _panel_axes(op: OpShape, sizes: Dims) -> Dims:
    """The axes of weights: those of the result first, then blocked ones, then taps."""
    second, result = op.inputs[1], _plain(op.result)
    axes = range(len(second.axes))

    def place(i: int) -> tuple[bool, bool]:
        dim = second.axes[i][0][0] if second.axes[i] else -1
        is_summed = dim not in result
        return is_summed, is_summed and not (dim >= 0 and sizes[dim])

    return tuple(sorted(axes, key=place))


def _panel_blocks(op: OpShape, sizes: Dims) -> Dims:
    """The blocked loops of weights: the depth in front, so that columns are neighbours."""
    result = _plain(op.result)
    return tuple(sorted(_as_axes(op.inputs[1], sizes), key=lambda dim: dim in result))
