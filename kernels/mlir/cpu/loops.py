"""The nodes of a loop nest to transform operations, one commented block per node."""

from collections.abc import Iterator
from dataclasses import replace

from tilewise.kernels.mlir.cpu.inner_products import holds_tile
from tilewise.kernels.mlir.cpu.packs import PackEmitter
from tilewise.kernels.mlir.cpu.pieces import Extents, Piece, check_uniform, cut
from tilewise.kernels.mlir.payload.form import Form
from tilewise.kernels.mlir.transform.writer import ANY, Writer
from tilewise.kernels.nest import Compute, Fetch, Layout, Loop, LoopKind, Nest, Stage, Store, text

Handles = tuple[str, str | None]
"""The contraction, and the epilogue where there is one."""


def blocks(nest: Nest, writer: Writer) -> Iterator[Loop | Stage | Compute]:
    """Yield the nodes that have operations, each with a comment before and a cleanup after them.

    Prefetches, and stores past the caches, are comments alone.
    """
    for here in nest.visit():
        node = here.node
        if not isinstance(node, Fetch | Store):
            writer.line(f"// {text(node)}")
            yield node
            writer.include("cleanup")
        elif isinstance(node, Fetch) or node.is_nontemporal:
            writer.line(f"// {text(node)}: left to the hardware here")


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
        if not holds_tile(self.nest, self.form.accumulator_bytes):
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
