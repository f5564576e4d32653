"""The strides of a loop nest: of operands in place and packed, of words, of taps.

They come from the accesses of its operands and the layouts of its stages. The macro-kernel and the
micro-kernel see a matmul and a convolution alike through them: a row of the result moves A by a
stride, a k-block starts at an offset, and a convolution adds taps.
"""

from dataclasses import dataclass
from math import prod

from tilewise.kernels.arithmetic import Arithmetic, must_pack, size_of
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.ir.vectors import LINE_BYTES
from tilewise.kernels.nest import Layout, Nest, Operand, Role, Stage, shape_of

VOLUME = len("dhw")
"""The axes of a volume, and of the filter taps in it."""

Dims = dict[str, int]
"""What one step along each dim moves an operand by, in its elements."""


@dataclass(frozen=True)
class InPlace:
    """A factor in place, in stored elements.

    Attributes:
        dims: what one step along each row, column or batch dim moves it by.
        stream: what one step of the reduction moves it by.
        is_transposed: whether the reduction is not the contiguous dim of A, or is that of B.
    """

    dims: Dims
    stream: int
    is_transposed: bool = False


@dataclass(frozen=True)
class PackedRows:
    """A in panels, in packed elements.

    Attributes:
        dims: what one step along m, oh, ow moves it by.
        row: between rows (pixels); between steps of the reduction if A is transposed.
    """

    dims: Dims
    row: int


@dataclass(frozen=True)
class Words:
    """Constant strides of the micro-kernel, in words; they fold into addresses.

    Attributes:
        a_row: between rows of A.
        a_step: of A between steps of the reduction.
        b_row: of B between steps of the reduction.
        filled_row: `b_row` in place, where the micro-kernel packs a panel in passing; else 0.
    """

    a_row: int
    a_step: int
    b_row: int
    filled_row: int = 0


@dataclass(frozen=True)
class Taps:
    """The micro-kernel's loops over filter taps.

    Attributes:
        slices, rows, cols: how many there are; 0 slices of an image's filter.
        depth_factor: 1, or kw where (kw, ci) are contiguous and fold into one reduction.
        a_slice, a_row, a_col: what one filter slice, row or column moves the image by, in words.
        b_source: what one tap moves B by in place, in stored elements.
    """

    slices: int = 0
    rows: int = 1
    cols: int = 1
    depth_factor: int = 1
    a_slice: int = 0
    a_row: int = 0
    a_col: int = 0
    b_source: int = 0

    @property
    def loops(self) -> int:
        """Return how many loops there are: none, over rows and columns, or over slices as well."""
        return VOLUME if self.slices else 2 * (self.rows * self.cols > 1)


@dataclass(frozen=True)
class Strides:
    """All strides of a schedule: of operands in place, of packed A, of the micro-kernel."""

    a: InPlace
    b: InPlace
    c: Dims
    bias: Dims
    packed_a: PackedRows
    words: Words
    taps: Taps = Taps()


def strides_of(nest: Nest, how: Arithmetic) -> Strides:
    """Return the strides of a nest.

    Raises:
        LoweringError: an operand that the arithmetic cannot read in place is not packed, or a
            k-block does not end with a word.
    """
    _check_packs(nest, how)
    if nest.algorithm:
        return _transformed(nest, how)
    if nest.group:
        return _depthwise_strides(nest)
    a, b = _in_place(nest, "A", nest.rows), _in_place(nest, "B", (nest.col,))
    packed = _packed_a(nest, how)
    return Strides(
        a,
        b,
        c=_moves(nest, nest.operand("C"), (*nest.rows, nest.col)),
        bias=_moves(nest, nest.operand("bias"), (nest.row, nest.col)),
        packed_a=packed,
        words=_words(nest, how, packed, b),
        taps=_taps(nest, how, packed) if nest.image == "A" else Taps(),
    )


def shape_of_stage(nest: Nest, role: str) -> tuple[int, ...] | None:
    """Return the shape of an operand's largest staged block; None where it is read in place."""
    for here in nest.visit():
        if isinstance(here.node, Stage) and here.node.operand == role:
            return shape_of(nest, here)
    return None


def _check_packs(nest: Nest, how: Arithmetic) -> None:
    """Refuse a nest that the target cannot run: no legality check knows the target."""
    for role in sorted(must_pack(nest.problem, how)):
        if not nest.stage(role):
            raise LoweringError(
                f"{nest.problem}: {role} cannot be read in place on this target; "
                f"add the step pack operand={role}"
            )
    if nest.depth != nest.extent(nest.k) and nest.depth % how.depth:
        raise LoweringError(
            f"{nest.problem}: a chunk of depth {nest.depth} is no multiple of the {how.depth} "
            "elements that are multiplied at once"
        )


def _in_place(nest: Nest, role: str, dims: tuple[str, ...]) -> InPlace:
    """Return a factor in place; gathered patches have no strides but those between images."""
    access = nest.operand(role)
    moves, along_k = _moves(nest, access, dims), access.stride(nest.k) or 0
    return InPlace(moves, along_k, is_transposed(nest, role))


def _moves(nest: Nest, access: Operand, dims: tuple[str, ...]) -> dict[str, int]:
    """Return what a step along each LEAD dim, or one of `dims`, moves an operand by."""
    named = [dim for dim in (*nest.named(Role.LEAD), *dims) if dim in access.dims]
    return {dim: access.stride(dim) or 0 for dim in named}


def _depthwise_strides(nest: Nest) -> Strides:
    """Return the strides of whole images and results; the micro-kernel knows those within."""
    moves = {role: _moves(nest, nest.operand(role), ("n",)) for role in (nest.image, "C")}
    a, b = (InPlace(moves.get(role, {}), stream=0) for role in ("A", "B"))
    return Strides(a, b, moves["C"], {}, PackedRows({}, 0), Words(0, 0, 0))


def _packed_a(nest: Nest, how: Arithmetic) -> PackedRows:
    """Return A in its stage, or what it would be there."""
    stage, a = nest.stage("A"), nest.operand("A")
    if stage and stage.layout is Layout.IMAGE:
        width = (shape_of_stage(nest, "A") or (0, 0))[-2]
        pixel = -(-nest.depth // how.depth) * how.depth
        line = a.scale("oh") * width * pixel
        return PackedRows({"oh": line, "ow": a.scale("ow") * pixel}, row=pixel)
    if not a.is_contiguous(nest.k):
        return PackedRows({nest.row: how.depth}, row=_packed_column(nest, how))
    row = odd_lines(-(-nest.depth // how.depth) * how.packed_word, size_of(how.packed))
    if how.in_parts:  # words of several lines
        row = (-(-nest.depth // how.depth) | 1) * how.depth
    return PackedRows({nest.row: row}, row)


def _packed_column(nest: Nest, how: Arithmetic) -> int:
    """Return the packed elements between steps of the reduction of a transposed A."""
    rows = (shape_of_stage(nest, "A") or (0,))[0]
    word, lanes = how.depth * size_of(how.packed), max(1, LINE_BYTES // how.word_bytes)
    return odd_lines(-(-rows // lanes) * lanes, word) * how.depth


def _words(nest: Nest, how: Arithmetic, packed: PackedRows, b: InPlace) -> Words:
    """Return the micro-kernel's strides: of A's row and step in words, and of B's row in place."""
    a = nest.operand("A")
    if not a.is_contiguous(nest.k):
        step = packed.row // how.depth if nest.stage("A") else a.stride(nest.k) or 0
        in_words = (1, step)
    else:
        row = packed.dims[nest.row] if nest.stage("A") else a.stride(nest.row) or 0
        in_words = (row // how.depth, 1)
    if not nest.stage("B"):
        return Words(*in_words, b_row=b.stream)
    return Words(*in_words, b_row=nest.tile.cols, filled_row=b.stream if fills(nest, how) else 0)


def fills(nest: Nest, how: Arithmetic) -> bool:
    """Return whether a panel of B is packed while its first tile of rows is computed.

    Rows of B in registers are then what the panels hold, and can be stored as they are.
    """
    b = nest.operand("B")
    by_rows = b.is_contiguous(nest.col) and not b.is_gathered and not b.is_constant
    is_plain = not how.packs_b and nest.compute.lanes == 1 and not nest.algorithm
    return nest.stage("B") is not None and by_rows and is_plain


def _taps(nest: Nest, how: Arithmetic, packed: PackedRows) -> Taps:
    """Return the filter's taps; (kw, ci) that are contiguous fold into one reduction."""
    a, taps, depth = nest.operand("A"), nest.named(Role.TAP), nest.extent(nest.k)
    moves = [a.stride(tap) or 0 for tap in taps]
    across = taps[-1]
    folds = moves[-1] == depth
    if shape := shape_of_stage(nest, "A"):  # slices, lines and pixels of an image
        sizes = [prod(shape[at + 1 : -1]) for at in range(len(taps))]
        moves = [a.scale(tap) * size * packed.row for tap, size in zip(taps, sizes, strict=True)]
        folds = a.scale(across) == 1
    folds = folds and nest.depth == depth
    counts, words = [nest.extent(tap) for tap in taps], [move // how.depth for move in moves]
    return Taps(
        slices=prod(counts[:-2]) if len(taps) == VOLUME else 0,
        rows=counts[-2],
        cols=1 if folds else counts[-1],
        depth_factor=counts[-1] if folds else 1,
        a_slice=sum(words[:-2]),
        a_row=words[-2],
        a_col=words[-1],
        b_source=nest.operand("B").stride(across) or 0,
    )


def _taps_of_stored(nest: Nest, b: Operand) -> Taps:
    """Return the taps that are transformed; of quadrants a tap is a part of the columns."""
    if is_strassen(nest):
        return Taps(b_source=nest.extent(nest.col))
    rows, cols = (next(x.size for x in b.axes if x.indexes(dim)) for dim in ("kh", "kw"))
    return Taps(rows=rows, cols=cols, b_source=b.stride("kw") or 0)


def is_transposed(nest: Nest, role: str) -> bool:
    """Return whether the reduction is not the contiguous dim of A, or is that of B, as stored."""
    stored = nest.algorithm.stored(role) if nest.algorithm else nest.operand(role)
    return not nest.group and not stored.is_contiguous(nest.k if role == "A" else nest.col)


def is_strassen(nest: Nest) -> bool:
    """Return whether the products are of sums of quadrants."""
    return nest.algorithm is not None and not nest.algorithm.tiles_pixels


def _transformed(nest: Nest, how: Arithmetic) -> Strides:
    """Return A as transformed tiles, C as the products of the points, and B as it is stored."""
    assert nest.algorithm is not None
    points, row_dim = nest.named(Role.POINT)[0], nest.row
    _, tiles, depth = shape_of_stage(nest, "A") or (0, 0, 0)
    size, cols = size_of(how.packed), nest.tile.cols
    row, stored = odd_lines(depth, size), nest.algorithm.stored("B")
    moves = {nest.col: stored.stride(nest.col) or 0, points: odd_lines(depth * cols, size)}
    return Strides(
        a=InPlace({row_dim: 0}, stream=1),
        b=InPlace(moves, stored.stride(nest.k) or 0, is_transposed(nest, "B")),
        c={row_dim: cols, points: odd_lines(tiles * cols, size)},
        bias={nest.col: 1},
        packed_a=PackedRows({row_dim: row, points: odd_lines(tiles * row, size)}, row),
        words=Words(row, 1, b_row=cols),
        taps=_taps_of_stored(nest, stored),
    )


def odd_lines(elements: int, size: int) -> int:
    """Return the least stride of an odd number of cache lines that holds `elements`.

    Rows a power of two apart share a cache set; an odd number of lines uses all sets.
    """
    lines = -(-elements * size // LINE_BYTES)
    return (lines | 1) * LINE_BYTES // size
