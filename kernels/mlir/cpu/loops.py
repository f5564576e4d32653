"""Cutting a contraction so that every block has a static size.

Vectorisation needs static shapes, and blocks that do not divide an extent would leave
`min(size, rest)`. So an op is split where the last whole block ends, and once more where
the last whole register tile ends. Ops that are treated alike from there on (whole blocks
and the shorter block of whole tiles) share one handle; a sliver narrower than the
register tile becomes a piece of its own.


Packs as transform operations: panels of B, rows of A, and blocks of a padded image.

The nodes of a loop nest to transform operations, one commented block per node.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.mlir.payload.form import Form
from tilewise.kernels.mlir.transform.sequences import pack_epilogue, pack_panels
from tilewise.kernels.mlir.transform.writer import ANY, Writer
from tilewise.kernels.nest import (
    Compute,
    Fetch,
    Layout,
    Loop,
    LoopKind,
    Nest,
    Role,
    Stage,
    Store,
)

Extents = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Piece:
    """One handle of the script and what is known about the ops behind it.

    Attributes:
        handle: the SSA name, with its `%`.
        extents: for each dim the extents that its ops can have; more than one where
            whole blocks and a shorter one share the handle.
        merged: whether the handle stands for several ops.
        lanes: panel width of packed B; None while B is read in place.
        moves_image: whether a loop around it moves A, for a convolution the image.
    """

    handle: str
    extents: Extents
    lanes: int | None = None
    merged: bool = False
    moves_image: bool = False

    def with_extent(self, handle: str, dim: str, extents: tuple[int, ...]) -> "Piece":
        """The same piece behind `handle` with new extents of `dim`."""
        merged = self.merged or len(extents) > 1
        return replace(self, handle=handle, extents={**self.extents, dim: extents}, merged=merged)


@dataclass(frozen=True)
class Cut:
    """Where to split one extent: whole blocks, then whole units, then the sliver."""

    blocks: int
    units: int
    sliver: int

    @property
    def main(self) -> tuple[int, ...]:
        """The parts that consist of whole units."""
        return tuple(part for part in (self.blocks, self.units) if part)

    @property
    def parts(self) -> tuple[int, ...]:
        """All parts, in order."""
        return (*self.main, self.sliver) if self.sliver else self.main


def cut(extent: int, size: int, unit: int) -> Cut:
    """Cut `extent` for blocks of `size` made of register tiles of `unit`."""
    blocks = extent - extent % size
    units = (extent - blocks) // unit * unit
    return Cut(blocks, units, extent - blocks - units)


def check_uniform(dim: str, extents: tuple[int, ...], size: int, unit: int) -> None:
    """Raise unless every one of several extents can be tiled without another split.

    Raises:
        LoweringError: a block that is already a remainder would need splitting again.
    """
    for extent in extents:
        if extent % unit or (extent > size and extent % size):
            raise LoweringError(
                f"dim {dim}: blocks of {' and '.join(map(str, extents))} share one loop nest, "
                f"and {size} does not divide {extent}; use one tile step for {dim}, or sizes "
                f"that divide each other"
            )


LARGEST_COPY = 256
COPY_ROWS = 8
REGISTERS = 32  # of the widest vectors


def largest_divisor(extents: tuple[int, ...], limit: int) -> int:
    """The largest divisor of all extents that is at most `limit`."""
    common = gcd(*extents)
    return max(d for d in range(1, min(limit, common) + 1) if common % d == 0)


def _at(dim: str, dims: tuple[str, ...], size: int) -> list[int]:
    """`size` at the place of `dim`, zeros elsewhere."""
    return [size if name == dim else 0 for name in dims]


class PackEmitter:
    """Writes the stages of a nest.

    Handles of the copies that they leave behind are collected, since they are tiled and
    vectorised after all loops exist.
    """

    def __init__(self, form: Form, writer: Writer) -> None:
        self.form = form
        self.nest = form.nest
        self.writer = writer
        self.panel_widths: dict[int, None] = {}
        self.epilogue_lanes = 0
        self.copies: dict[tuple[int, ...], list[str]] = {}

    # B

    def copy_panels(self, piece: Piece) -> Piece:
        """B to panels of columns; a piece narrower than a panel has narrower ones."""
        w = self.writer
        lanes = min(self.nest.tile.cols, *piece.extents[self.nest.col])
        self.panel_widths[lanes] = None
        packed, copy = w.name("packed"), w.name("panels")
        include = (
            f"transform.include @pack_panels_{lanes} failures(propagate) ({{}}) "
            f": ({ANY}) -> ({ANY}, {ANY})"
        )
        if piece.merged:
            w.line(
                f"{packed}, {copy} = transform.foreach {piece.handle} : {ANY} -> {ANY}, {ANY} {{"
            )
            w.line(f"^bb0(%op: {ANY}):")
            w.line(f"  %p, %c = {include.format('%op')}")
            w.line(f"  transform.yield %p, %c : {ANY}, {ANY}")
            w.line("}")
        else:
            w.line(f"{packed}, {copy} = {include.format(piece.handle)}")
        depths = piece.extents[self.nest.k]
        taps = (1,) * len(self.form.taps)
        lead = (1,) * len(self.nest.named(Role.LEAD))
        self._remember(copy, (*lead, 1, *taps, largest_divisor(depths, COPY_ROWS)))
        return replace(piece, handle=packed, lanes=lanes)

    def copy_columns(self, piece: Piece) -> Piece:
        """B to columns that are contiguous along the reduction, as inner products read them."""
        w, nest = self.writer, self.nest
        if self.form.transposes_columns:
            packed, copy = self._copied(piece.handle, self.form.operands[1], nest.col, "columns")
        else:
            packed, copy = w.name("turned"), w.name("column_copy")
            w.line(
                f"{packed} = transform.structured.transpose_matmul {piece.handle} <rhs> "
                f": ({ANY}) -> {ANY}"
            )
            w.line(f"{copy} = transform.get_producer_of_operand {packed}[1] : ({ANY}) -> {ANY}")
        ones = (1,) * (1 + len(nest.named(Role.LEAD)))
        self._remember(copy, (*ones, largest_divisor(piece.extents[nest.k], LARGEST_COPY)))
        return replace(piece, handle=packed)

    def reshape_epilogue(self, epilogue: str, lanes: int) -> str:
        """The epilogue on C in the shape that packing B gives it."""
        self.epilogue_lanes, led = lanes, self.writer.name("packed_epilogue")
        self.writer.line(
            f"{led} = transform.include @pack_epilogue_{lanes} failures(propagate) "
            f"({epilogue}) : ({ANY}) -> {ANY}"
        )
        return led

    # A

    def copy_rows(self, piece: Piece) -> Piece:
        """A to a block of its own, in the order in which A lies, nothing padded."""
        copied, copy = self._copied(piece.handle, self.form.operands[0], self.nest.row, "rows")
        ones = (1,) * self.form.copied_dims
        neighbours = piece.extents[self.form.contiguous]
        self._remember(copy, (*ones, largest_divisor(neighbours, LARGEST_COPY)))
        return replace(piece, handle=copied)

    def copy_image(self, piece: Piece) -> Piece:
        """A block of the image, padded where it is used if there is padding.

        Where no loop moves the image, its only block is the whole image. Blocks of a shorter
        length than others share their handle, and copy from the image padded as a whole.
        """
        if piece.merged or not self.form.pads_image:
            return self.copy_rows(piece)
        return self._pad_block(piece) if piece.moves_image else piece

    def _pad_block(self, piece: Piece) -> Piece:
        """Zeros, and the pixels that exist, in the loop around the piece."""
        w = self.writer
        w.line("transform.apply_patterns to %func {")
        w.line("  transform.apply_patterns.tensor.merge_consecutive_insert_extract_slice")
        w.line(f"}} : {ANY}")
        block, padded, loop = w.name("block"), w.name("padded"), w.name("loop")
        for found, user, index in (
            (block, piece.handle, self.form.image_operand),
            (padded, block, 0),
        ):
            w.line(
                f"{found} = transform.get_producer_of_operand {user}[{index}] : ({ANY}) -> {ANY}"
            )
        w.line(f"{loop} = transform.get_parent_op {piece.handle} : ({ANY}) -> {ANY}")
        w.fuse(padded, loop, "padded_block")
        return piece

    def fill_pads(self) -> None:
        """Padded blocks as what they are in memory: zeros first, then the pixels."""
        w = self.writer
        w.line("// padded blocks: zeros first, then the pixels")
        pads, filled, zeros = w.name("pads"), w.name("filled"), w.name("zeros")
        w.line(
            f'{pads} = transform.structured.match ops{{["tensor.pad"]}} in %func : ({ANY}) -> {ANY}'
        )
        w.line(
            f"{filled} = transform.structured.rewrite_in_destination_passing_style {pads} "
            f": ({ANY}) -> {ANY}"
        )
        w.line(f"{zeros} = transform.get_producer_of_operand {filled}[1] : ({ANY}) -> {ANY}")
        plain = w.name("plain")  # no more a fill, as that of C is
        w.line(f"{plain} = transform.structured.generalize {zeros} : ({ANY}) -> {ANY}")

    # All of them

    def sequences(self) -> list[str]:
        """The named sequences that the stages included."""
        form, col = self.form, self.nest.col
        found = [
            pack_panels(lanes, _at(col, form.dims, lanes), form.panels_first, form.operands[1])
            for lanes in self.panel_widths
        ]
        if self.epilogue_lanes:
            sizes = _at(col, form.result_dims, self.epilogue_lanes)
            along = {"bias": 0} if col in form.bias_dims else {}
            operands = along | {"c": int(bool(form.bias_dims))}
            found.append(pack_epilogue(self.epilogue_lanes, sizes, operands))
        return found

    def vectorize_copies(self) -> None:
        """Tile the copies of the packs to a few vectors each, and vectorise them.

        Two packs of the same block are one op after common subexpressions are merged, so
        handles are merged too.
        """
        w = self.writer
        if not self.copies:
            return
        w.line("// the copies of the packs")
        tiled = []
        for sizes, handles in self.copies.items():
            merged = w.name("copies")
            w.line(f"{merged} = transform.merge_handles deduplicate {', '.join(handles)} : {ANY}")
            tiled.append(w.tile_for(merged, sizes)[0])
        w.include("cleanup")
        for handle in tiled:
            w.line(f"transform.structured.vectorize {handle} : {ANY}")

    def _copied(self, handle: str, operand: int, dim: str, names: str) -> tuple[str, str]:
        """The op on a copy of an operand that `dim` and the reduction move; and the copy.

        It is a copy of `names`, in the plural.
        """
        w, zero = self.writer, self.form.zero
        moving = [name for name in (dim, self.nest.k) if name in self.form.dims]
        dims = [self.form.dims.index(name) for name in moving]
        nofold = [int(index == operand) for index in range(operand + 1)]
        copied, pads, back = w.name("copied"), w.name("pad"), w.name("back")
        w.line(
            f"{copied}, {pads}, {back} = transform.structured.pad {handle} "
            f"<{{padding_values = {_list([zero] * len(nofold))}, padding_dimensions = {dims}, "
            f'nofold_flags = {nofold}, copy_back_op = "none"}}> : ({ANY}) -> ({ANY}, {ANY}, {ANY})'
        )
        producer, copy = w.name(names), w.name(f"{names[:-1]}_copy")
        w.line(
            f"{producer} = transform.get_producer_of_operand {copied}[{operand}] : ({ANY}) -> {ANY}"
        )
        w.line(
            f"{copy} = transform.structured.rewrite_in_destination_passing_style {producer} "
            f": ({ANY}) -> {ANY}"
        )
        return copied, copy

    def _remember(self, copy: str, sizes: tuple[int, ...]) -> None:
        self.copies.setdefault(sizes, []).append(copy)


def _list(words: list[str]) -> str:
    return f"[{', '.join(words)}]"


Handles = tuple[str, str | None]
"""The contraction, and the epilogue where there is one."""


def blocks(nest: Nest, writer: Writer) -> Iterator[Loop | Stage | Compute]:
    """Yield the nodes that have operations, each with a comment before and a cleanup after them.

    Prefetches, and stores past the caches, are comments alone.
    """
    for here in nest.visit():
        node = here.node
        if not isinstance(node, Fetch | Store):
            writer.line(f"// {node}")
            yield node
            writer.include("cleanup")
        elif isinstance(node, Fetch) or node.is_nontemporal:
            writer.line(f"// {node}: left to the hardware here")


class LoopEmitter:
    """Writes the loops and stages of a nest.

    The epilogue leads while it can: it is what loops over the result are made of, and the
    contraction and its fill are fused into them. It stays behind at the first loop over the
    reduction, since it needs whole sums, and where the contraction is split for static
    shapes. There it meets the block in cache; if it leads to the end, in registers.

    The pieces are the contraction as it stands: each node replaces them by the tiled,
    split or packed ones.
    """

    def __init__(self, form: Form, handles: Handles, writer: Writer) -> None:
        handle, self.epilogue = handles
        self.form = form
        self.nest = form.nest
        self.writer = writer
        extents: Extents = {dim: (extent,) for dim, extent in self.nest.extents.items()}
        self.pieces = [Piece(handle, extents)]
        self.fill_follows = form.starts_from_fill
        self.packs = PackEmitter(form, writer)

    def run(self) -> None:
        """Write every node down to the register tile."""
        for node in blocks(self.nest, self.writer):
            if isinstance(node, Stage):
                self._pack(node)
            elif isinstance(node, Compute):
                self._finish()
            else:
                kind = "for" if node.kind is LoopKind.K_BLOCK else "forall"
                self._tile(node.dim, node.step, kind)
        if self.form.pads_image:
            self.packs.fill_pads()

    # Splitting and tiling

    def _divide(self, dim: str, size: int) -> None:
        """Split the pieces until blocks of `size` have static shapes along `dim`.

        A shorter block is whole multiples of a register tile's extent.
        """
        out: list[Piece] = []
        for piece in self.pieces:
            extents, panel = piece.extents[dim], self._panel(piece, dim)
            unit = self.nest.unit(dim) if panel == 1 else panel
            if len(extents) > 1:
                check_uniform(dim, extents, size, unit)
                out.append(piece)
            else:
                out.extend(self._split(piece, dim, size, unit))
        self.pieces = out

    def _panel(self, piece: Piece, dim: str) -> int:
        """What one step along `dim` of the op means: a panel of columns once B is packed."""
        return piece.lanes if piece.lanes and dim == self.nest.col else 1

    def _split(self, piece: Piece, dim: str, size: int, unit: int) -> list[Piece]:
        where = cut(piece.extents[dim][0], size, unit)
        if len(where.parts) == 1:
            return [piece]
        self.fill_follows, self.epilogue = False, None
        sizes = " + ".join(map(str, where.parts))
        self.writer.line(f"// static shapes: {dim} = {sizes}")
        handles, rest = [], piece.handle
        for part in where.parts[:-1]:
            head, tail = self._split_after(piece, rest, part, dim)
            handles.append(head)
            rest = tail
        handles.append(rest)
        main = handles[: len(where.main)]
        out = []
        if main:
            out.append(piece.with_extent(_merged(main, self.writer), dim, where.main))
        if where.sliver:
            out.append(piece.with_extent(handles[-1], dim, (where.sliver,)))
        return out

    def _split_after(self, piece: Piece, handle: str, point: int, dim: str) -> tuple[str, str]:
        """Split at `point`."""
        steps = point // self._panel(piece, dim)
        at = f"after {steps} {{dimension = {self.form.dims.index(dim)}}} : {ANY}"
        return _split_op(self.writer, handle, dim, at, piece.merged)

    def _tile(self, dim: str, size: int, kind: str = "forall") -> None:
        self._divide(dim, size)
        self.pieces = [self._loop(piece, dim, size, kind) for piece in self.pieces]

    def _loop(self, piece: Piece, dim: str, size: int, kind: str) -> Piece:
        """Tile one piece; a piece of a single block needs no loop."""
        if max(piece.extents[dim]) <= size:
            return piece
        self.epilogue = self.epilogue if kind == "forall" else None
        steps = size // self._panel(piece, dim)
        if self.epilogue is None:
            tiled, loop = self._tile_op(piece.handle, self.form.dims, dim, steps, kind)
        else:
            led, loop = self._tile_op(self.epilogue, self.form.result_dims, dim, steps, kind)
            tiled, loop = self.writer.fuse(piece.handle, loop, f"{dim}_inner")
            self.epilogue = led
        if kind == "forall" and self.fill_follows:
            self._fuse_fill(loop)
        self.fill_follows &= kind == "forall"
        extents = tuple(sorted({min(e, size) for e in piece.extents[dim]}, reverse=True))
        moves = piece.moves_image or dim in self.form.moving_dims
        return replace(piece.with_extent(tiled, dim, extents), moves_image=moves)

    def _tile_op(
        self, handle: str, dims: tuple[str, ...], dim: str, size: int, kind: str
    ) -> tuple[str, str]:
        """Tile an op with the given dims along one of them; the tile and the loop."""
        w = self.writer
        tiled, loop = w.name(f"{dim}_block"), w.name(f"{dim}_loop")
        sizes = [*(0 for _ in dims[: dims.index(dim)]), size]
        w.line(
            f"{tiled}, {loop} = transform.structured.tile_using_{kind} {handle} "
            f"tile_sizes {sizes} : ({ANY}) -> ({ANY}, {ANY})"
        )
        return tiled, loop

    def _fuse_fill(self, loop: str) -> None:
        """Zeros are written where they are used, in the end into registers.

        This ends at the first loop over the reduction, and where the op was split: the
        second part adds to what the first left, not to the fill.
        """
        fill = self.writer.name("fill")
        self.writer.line(
            f'{fill} = transform.structured.match ops{{["linalg.fill"]}} in %func '
            f": ({ANY}) -> {ANY}"
        )
        self.writer.fuse(fill, loop, "fill_tile")

    # Packing

    def _pack(self, stage: Stage) -> None:
        copies = {
            Layout.PANELS: self._copy_panels,
            Layout.PANELS_ALONG_K: self.packs.copy_columns,
            Layout.ROWS: self.packs.copy_rows,
            Layout.IMAGE: self.packs.copy_image,
        }
        if stage.operand == "B":
            self._divide(self.nest.col, self.nest.tile.cols)
        self.pieces = [copies[stage.layout](piece) for piece in self.pieces]

    def _copy_panels(self, piece: Piece) -> Piece:
        packed = self.packs.copy_panels(piece)
        if self.epilogue is not None and packed.lanes:
            self.epilogue = self.packs.reshape_epilogue(self.epilogue, packed.lanes)
        return packed

    # The register tile

    def _finish(self) -> None:
        """What becomes of the register tiles: ops that matchers know.

        Where registers do not hold all partial sums of a tile, they hold those of a row or column.
        """
        if not _holds_tile(self.form):
            dim = self.nest.row if self.nest.tile.rows > 1 else self.nest.col
            self.writer.line(f"// registers hold the sums of one {dim}")
            self._tile(dim, 1)
            self.writer.include("cleanup")
        for piece in self.pieces:
            self.writer.line(
                f"{self.writer.name('tile')} = transform.structured.generalize {piece.handle} "
                f": ({ANY}) -> {ANY}"
            )


def _merged(handles: list[str], writer: Writer) -> str:
    """One handle for the ops of several."""
    if len(handles) == 1:
        return handles[0]
    merged = writer.name("blocks")
    writer.line(f"{merged} = transform.merge_handles {', '.join(handles)} : {ANY}")
    return merged


def _split_op(w: Writer, handle: str, dim: str, at: str, merged: bool) -> tuple[str, str]:
    """Both parts of an op; op by op where the handle stands for several."""
    head, rest = w.name(f"{dim}_head"), w.name(f"{dim}_rest")
    if not merged:
        both = w.name("split")
        w.line(f"{both} = transform.structured.split {handle} {at}")
        w.line(f"{head}, {rest} = transform.split_handle {both} : ({ANY}) -> ({ANY}, {ANY})")
        return head, rest
    w.line(f"{head}, {rest} = transform.foreach {handle} : {ANY} -> {ANY}, {ANY} {{")
    w.line(f"^bb0(%op: {ANY}):")
    w.line(f"  %both = transform.structured.split %op {at}")
    w.line(f"  %h, %r = transform.split_handle %both : ({ANY}) -> ({ANY}, {ANY})")
    w.line(f"  transform.yield %h, %r : {ANY}, {ANY}")
    w.line("}")
    return head, rest


def _holds_tile(form: Form) -> bool:
    """Whether registers hold all partial sums of the tile, and what a step reads.

    Without partial sums every element of a tile has one lane of a register.
    """
    tile, lanes = form.nest.tile, form.nest.compute.lanes
    vectors = -(-lanes // form.register_lanes)
    return lanes == 1 or vectors * tile.rows * tile.cols + tile.cols + 1 <= REGISTERS
