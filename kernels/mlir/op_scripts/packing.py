"""The loops of an op by role, and which operands are packed for a schedule."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import gcd, prod

from tilewise.kernels.mlir.cpu.loops import largest_divisor
from tilewise.kernels.mlir.frontend.graph import Arrangement, Occurrence
from tilewise.kernels.mlir.frontend.nest import (
    ContractionNest,
    Dims,
    NestOperand,
    contraction_roles,
    convolution_roles,
)

MAINS = ("m", "n", "k", "ow", "co", "ci")
"""The names of the loops that a schedule tiles: rows, columns, the reduction."""


LONG = 16
"""Steps of a loop that may be tiled although a longer one exists, whose use would pack A."""


@dataclass(frozen=True)
class OpLoops:
    """The loops of an op that have more than one step, outermost first.

    Attributes:
        lead: batches or groups, in both B and C.
        rows: in A and C: images and pixels of a convolution.
        cols: in B and C.
        sums: in A and B: channels and taps of a convolution.
        fixed: loops that are never packed: images, and those in sums that index an image.
    """

    lead: Dims
    rows: Dims
    cols: Dims
    sums: Dims
    names: dict[int, str]
    fixed: frozenset[int] = frozenset()

    @property
    def alone(self) -> Dims:
        """The loops in both B and C that are visited one step at a time."""
        return (*self.lead, *(dim for dim in self.cols if dim not in self.mains))

    @property
    def mains(self) -> Dims:
        """The loops that the schedule tiles: a row, a column, the reduction."""
        loops = (*self.rows, *self.cols, *self.sums)
        return tuple(dim for dim in loops if self.names[dim] in MAINS)

    @property
    def around(self) -> Dims:
        """The other loops."""
        outer = (dim for dim in (*self.rows, *self.sums) if dim not in self.mains)
        return (*self.alone, *outer)

    @property
    def taps(self) -> Dims:
        """The reduction loops that are not streamed."""
        return tuple(dim for dim in self.sums if dim not in self.mains)

    @property
    def order(self) -> Dims:
        """All loops, those of the schedule innermost."""
        return (*self.around, *self.mains)

    def within(self, own: Dims, *, reduction_first: bool = False) -> Dims:
        """Return the loops of an input with `own` rows or columns, in packed order."""
        found = [dim for dim in self.order if dim in (*self.lead, *own, *self.sums)]
        if reduction_first:  # of the two that the schedule tiles
            found.sort(key=lambda dim: (dim in self.mains) + (dim in self.mains and dim in own))
        return tuple(found)

    @property
    def result(self) -> Dims:
        """The loops of the result in packed order."""
        return tuple(dim for dim in self.order if dim not in self.sums)

    def names_of(self, dims: Iterable[int]) -> tuple[str, ...]:
        """Return the names of dims."""
        return tuple(self.names[dim] for dim in dims)


def product_parts(nest: ContractionNest, found: Occurrence) -> OpLoops:
    """Return the loops of a matmul by role, in the order of the problem's operands."""
    lead, rows, cols, sums = contraction_roles(nest)
    in_a, in_c = _arranged(nest.a, found.a), _arranged(nest.c, found.c)
    parts = (
        _in_order(lead, in_c),
        _inner_last(nest, _in_order(rows, in_c), lead),
        _in_order(cols, in_c),
        _inner_last(nest, _in_order(sums, in_a), lead),
    )
    names = {
        **_named("batch", parts[0], has_main=len(lead) == 1),
        **_named("m", parts[1]),
        **_named("n", parts[2]),
        **_named("k", parts[3]),
    }
    return OpLoops(*parts, names)


def convolution_parts(nest: ContractionNest, found: Occurrence) -> OpLoops:
    """Return the loops of a convolution by role, as a product of pixels and filters."""
    windows, (*of_result, depths, channels) = convolution_roles(nest)
    place = {axis: i for i, axis in enumerate(found.a.axes)}
    down, across = sorted(windows, key=lambda one: -1 if one.axis is None else place[one.axis])
    in_c, in_b = _arranged(nest.c, found.c), _arranged(nest.b, found.b)
    images, groups, outputs = (_in_order(one, in_c) for one in (*of_result, channels))
    inputs = _largest_last(nest, _in_order(depths, in_b))
    pixels = {down.out: "oh", across.out: "ow"}
    taps = {down.tap: "kh", across.tap: "kw"}
    names = {
        **_named("g", groups, has_main=len(groups) == 1),
        **_named("n", images),
        **_named("co", outputs),
        **_named("ci", inputs),
        **{dim: name for dim, name in (pixels | taps).items() if dim is not None},
    }
    long = [dim for dim in names if nest.has_length(dim)]
    return OpLoops(
        groups,
        (*images, *(dim for dim in pixels if dim in long)),
        outputs,
        (*inputs[:-1], *(dim for dim in taps if dim in long), *inputs[-1:]),
        names,
        frozenset(dim for dim in (*images, *pixels, *taps) if dim is not None),
    )


def sizes_of(nest: ContractionNest, operand: NestOperand) -> dict[int, int]:
    """Return the sizes of an operand's axes in order by their dims, without axes of one step.

    For an axis indexed by a sum it is the result's dim, if that is a loop.
    """
    found: dict[int, int] = {}
    for axis, size in zip(operand.axes, operand.shape, strict=True):
        long = [dim for dim, _ in axis if nest.has_length(dim)]
        if long:
            found[next((dim for dim in long if dim in nest.c.dims), long[0])] = size
    return found


def _arranged(operand: NestOperand, how: Arrangement) -> Dims:
    """Return the dims of an operand in the problem's order."""
    return tuple(dim for i in how.axes for dim, _ in operand.axes[i])


def _in_order(dims: frozenset[int], order: Dims) -> Dims:
    return tuple(dim for dim in order if dim in dims)


def _largest_last(nest: ContractionNest, dims: Dims) -> Dims:
    """Return the dims with the longest one last; the last of equals."""
    if not dims:
        return dims
    main = max(dims, key=lambda dim: (nest.extents[dim], dims.index(dim)))
    return (*(dim for dim in dims if dim != main), main)


def _inner_last(nest: ContractionNest, dims: Dims, lead: frozenset[int]) -> Dims:
    """Return the dims with A's innermost one last if it is long, else the longest.

    If A's innermost axis is short or in `lead`, A is packed, and the longest is best.
    """
    inner = tuple(sizes_of(nest, nest.a))
    is_packed = not inner or inner[-1] in lead or nest.extents[inner[-1]] < LONG
    long = [dim for dim in inner if dim in dims and nest.extents[dim] >= LONG]
    if is_packed or not long:
        return _largest_last(nest, dims)
    return (*(dim for dim in dims if dim != long[-1]), long[-1])


def _named(name: str, dims: Dims, *, has_main: bool = True) -> dict[int, str]:
    """Return names of a role's dims: the last one has the problem's name if `has_main`."""
    outer = dims[:-1] if has_main else dims
    names = {dim: f"{name}{i}" for i, dim in enumerate(outer)}
    return names | ({dims[-1]: name} if has_main and dims else {})


LONGEST_VECTOR = 256
BLOCK = 8
"""Most elements of a copied vector, and of both sides of a transposed block."""

WAY_BYTES, MOST_WAYS = 4096, 7
"""Bytes of a way of the first-level cache, and the ways of its 8 to 12 that A may take."""


@dataclass(frozen=True)
class Reading:
    """How the register tile of a schedule reads operands.

    Attributes:
        turns: whether packed A and B have the reduction before rows and columns.
        is_split: whether the reduction is split, and several rows of A are read as one vector.
        rows: of the register tile.
        element_bytes: of A.
    """

    turns: tuple[bool, bool]
    is_split: bool
    rows: int
    element_bytes: int


@dataclass(frozen=True)
class PackingCopy:
    """The copy that packs an operand, or unpacks the result.

    `extents` are of what is written, without axes of one element. `tile` is that of the copies that
    become vectors: contiguous in both, or a block along both innermost axes.
    """

    extents: Dims
    tile: Dims


@dataclass(frozen=True)
class Packing:
    """The operands before a schedule's steps.

    Attributes:
        operands: dims of A, B and C.
        order: of the loops; packed ones come last.
        sizes: the extent of each packed loop of `Parts.order`, else 0; empty if nothing is packed.
        transposed: order of an operand's packed dims if it is not the loops'.
        moves: copies of A, B and C if packing changes their order.
        needs_panels: whether B can only be read from panels, as its columns are not contiguous.
    """

    operands: tuple[Dims, Dims, Dims]
    order: Dims
    sizes: Dims = ()
    transposed: tuple[Dims | None, ...] = (None, None, None)
    moves: tuple[PackingCopy | None, ...] = (None, None, None)
    needs_panels: bool = False


def packing(nest: ContractionNest, parts: OpLoops, reading: Reading) -> Packing:
    """Return how operands are packed, if they are."""
    operands = nest.a, nest.b, nest.c
    stored = [tuple(sizes_of(nest, operand)) for operand in operands]
    wanted = [
        parts.within(parts.rows, reduction_first=reading.turns[0]),
        parts.within(parts.cols, reduction_first=reading.turns[1]),
        parts.result,
    ]
    stays = _stay(nest, parts, reading, list(zip(stored, wanted, strict=True)))
    is_apart = not parts.fixed and not reading.is_split
    ends_in_sums = stored[1] != wanted[1] and stored[1][-1] in parts.sums
    needs_panels = is_apart and stays[1] and bool(parts.cols) and ends_in_sums
    if all(stays):
        return Packing((stored[0], stored[1], stored[2]), parts.order, needs_panels=needs_panels)
    a, b, c = (
        one if stay and is_apart else _packed(one, other, parts.fixed)
        for one, other, stay in zip(stored, wanted, stays, strict=True)
    )
    return Packing(
        (a, b, c),
        tuple(sorted(parts.order, key=lambda dim: dim not in parts.fixed)),
        tuple(0 if dim in parts.fixed else nest.extents[dim] for dim in parts.order),
        tuple(_transposed(parts, order) for order in (a, b, c)),
        (
            _move(nest, operands[0], stored[0], a),
            _move(nest, operands[1], stored[1], b),
            _move(nest, operands[2], c, stored[2]),
        ),
        needs_panels,
    )


def _stay(
    nest: ContractionNest, parts: OpLoops, reading: Reading, orders: list[tuple[Dims, Dims]]
) -> list[bool]:
    """Return whether A, B and C stay unpacked, given their orders and the wanted ones.

    Convolutions and split reductions want the schedule's loops innermost. Otherwise other loops may
    be between them: rows are read one by one, and elements of A in any order of rows and depth.
    """
    if parts.fixed or reading.is_split:
        return [_ends_so(*both, parts) for both in orders]
    (a, _), (b, _), (c, wanted) = orders
    return [
        a == orders[0][1] or (_ends_in_tile(a, parts) and _fits_ways(nest, parts, a, reading)),
        b == orders[1][1] or _ends_in_tile(b, parts),
        [dim for dim in c if dim in parts.mains] == [dim for dim in wanted if dim in parts.mains]
        and c[-1:] == wanted[-1:],
    ]


def _ends_so(stored: Dims, wanted: Dims, parts: OpLoops) -> bool:
    """Return whether the schedule's loops are innermost, in the wanted order.

    A convolution's pixels need not be contiguous, since they are read one by one.
    """
    count = sum(dim in parts.mains for dim in wanted)
    if parts.fixed and any(dim in parts.mains and dim in parts.rows for dim in wanted):
        count -= 1
    return stored[len(stored) - count :] == wanted[len(wanted) - count :]


def _ends_in_tile(stored: Dims, parts: OpLoops) -> bool:
    """Return whether contiguous elements of an input are contiguous in its tile."""
    return bool(stored) and stored[-1] in parts.mains


def _fits_ways(nest: ContractionNest, parts: OpLoops, stored: Dims, reading: Reading) -> bool:
    """Return whether the rows of A in a register tile fit into the first-level cache together.

    Rows at a multiple of a way's bytes share its lines and evict each other.
    """
    row = next((dim for dim in stored if dim in parts.rows and dim in parts.mains), None)
    if row is None or stored[-1] == row:
        return reading.rows > 1 or row is None
    inner = stored[stored.index(row) + 1 :]
    apart = prod(nest.extents[dim] for dim in inner) * reading.element_bytes
    return reading.rows * gcd(apart, WAY_BYTES) <= MOST_WAYS * WAY_BYTES


def _packed(stored: Dims, wanted: Dims, fixed: frozenset[int]) -> Dims:
    """Return the dims of a packed operand: fixed ones first, in their order."""
    return (*(dim for dim in stored if dim in fixed), *(dim for dim in wanted if dim not in fixed))


def _transposed(parts: OpLoops, dims: Dims) -> Dims | None:
    """Return the order of an operand's packed dims if it is not that of the loops."""
    wanted = [dim for dim in dims if dim not in parts.fixed]
    ordered = [dim for dim in parts.order if dim in wanted]
    return tuple(map(ordered.index, wanted)) if ordered != wanted else None


def _move(
    nest: ContractionNest, operand: NestOperand, read: Dims, written: Dims
) -> PackingCopy | None:
    """Return the copy of an operand between two orders of its axes; None if they are equal."""
    if read == written:
        return None
    sizes = sizes_of(nest, operand)
    tile = dict.fromkeys(written, 1)
    if read[-1] == written[-1]:
        tile[read[-1]] = largest_divisor((sizes[read[-1]],), LONGEST_VECTOR)
    else:
        for dim in (read[-1], written[-1]):
            tile[dim] = largest_divisor((sizes[dim],), BLOCK)
    return PackingCopy(tuple(sizes[dim] for dim in written), tuple(tile.values()))
