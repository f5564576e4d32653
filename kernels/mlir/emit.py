"""Schedule steps to transform operations, one commented block per step."""

from dataclasses import replace
from math import gcd

from kernels.mlir.form import Form
from kernels.mlir.pieces import Extents, Piece, check_uniform, cut
from kernels.mlir.sequences import pack_epilogue, pack_panels
from kernels.mlir.writer import ANY, Writer
from kernels.schedule import (
    Pack,
    Parallel,
    Prefetch,
    Register,
    Schedule,
    Step,
    Stream,
    Tile,
    Unroll,
)
from kernels.schedule.legality import part_size, tile_unit

LARGEST_COPY = 256
COPY_ROWS = 8


def largest_divisor(extents: tuple[int, ...], limit: int) -> int:
    """The largest divisor of all extents that is at most `limit`."""
    common = gcd(*extents)
    return max(d for d in range(1, min(limit, common) + 1) if common % d == 0)


def _at(dim: str, dims: tuple[str, ...], size: int) -> list[int]:
    """`size` at the place of `dim`, zeros elsewhere."""
    return [size if name == dim else 0 for name in dims]


Handles = tuple[str, str | None]
"""The contraction, and the epilogue where there is one."""


class StepEmitter:
    """Walks a schedule and writes the operations of each step.

    The epilogue leads while it can: it is what loops over the result are made of, and the
    contraction and its fill are fused into them. It stays behind at the first loop over the
    reduction, since it needs whole sums, and where the contraction is split for static
    shapes. There it meets the block in cache; if it leads to the end, in registers.

    The pieces are the contraction as it stands: each step replaces them by the tiled,
    split or packed ones. Handles of the copies that packs leave behind are collected,
    since they are tiled and vectorised after all loops exist.
    """

    def __init__(self, form: Form, schedule: Schedule, handles: Handles, writer: Writer) -> None:
        handle, self.epilogue = handles
        self.form = form
        self.schedule = schedule
        self.writer = writer
        extents: Extents = {dim: (extent,) for dim, extent in form.space.extents}
        self.pieces = [Piece(handle, extents)]
        self.fill_follows = form.starts_from_fill
        self.panel_widths: dict[int, None] = {}
        self.epilogue_lanes = 0
        self.copies: dict[tuple[int, ...], list[str]] = {}

    def run(self) -> None:
        """Write every step up to and including the register step."""
        for step in self.schedule.steps:
            if isinstance(step, Unroll):
                continue
            if isinstance(step, Prefetch):
                self.writer.line(f"// {step}: left to the hardware here")
                continue
            self.writer.line(f"// {step}")
            self._emit(step)
            self.writer.include("cleanup")
        if self.form.pads_image:
            self._fill_pads()

    def _emit(self, step: Step) -> None:
        if isinstance(step, Parallel):
            extent = self.form.space.extent(step.dim)
            self._tile(step.dim, part_size(extent, step.parts, self._unit(step.dim)))
        elif isinstance(step, Tile):
            self._tile(step.dim, step.size)
        elif isinstance(step, Stream):
            self._stream(step)
        elif isinstance(step, Pack):
            self._pack(step)
        elif isinstance(step, Register):
            self._register(step)

    # Splitting and tiling

    def _unit(self, dim: str) -> int:
        return tile_unit(self.form.space, self.schedule.register, dim)

    def _divide(self, dim: str, size: int) -> None:
        """Split the pieces until blocks of `size` have static shapes along `dim`."""
        out: list[Piece] = []
        for piece in self.pieces:
            extents, panel = piece.extents[dim], self._panel(piece, dim)
            unit = self._unit(dim) if panel == 1 else panel
            if len(extents) > 1:
                check_uniform(dim, extents, size, unit)
                out.append(piece)
            else:
                out.extend(self._split(piece, dim, size, unit))
        self.pieces = out

    def _panel(self, piece: Piece, dim: str) -> int:
        """What one step along `dim` of the op means: a panel of columns once B is packed."""
        return piece.lanes if piece.lanes and dim == self.form.space.col else 1

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
            out.append(piece.with_extent(self._merge(main), dim, where.main))
        if where.sliver:
            out.append(piece.with_extent(handles[-1], dim, (where.sliver,)))
        return out

    def _split_after(self, piece: Piece, handle: str, point: int, dim: str) -> tuple[str, str]:
        """Split at `point`; op by op where the handle stands for several."""
        w = self.writer
        head, rest = w.name(f"{dim}_head"), w.name(f"{dim}_rest")
        steps = point // self._panel(piece, dim)
        at = f"after {steps} {{dimension = {self.form.dims.index(dim)}}} : {ANY}"
        if not piece.merged:
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

    def _merge(self, handles: list[str]) -> str:
        if len(handles) == 1:
            return handles[0]
        merged = self.writer.name("blocks")
        self.writer.line(f"{merged} = transform.merge_handles {', '.join(handles)} : {ANY}")
        return merged

    def _tile(self, dim: str, size: int) -> None:
        self._divide(dim, size)
        self.pieces = [self._loop(piece, dim, size, "forall") for piece in self.pieces]

    def _stream(self, step: Stream) -> None:
        self._divide(step.dim, step.depth)
        self.pieces = [self._loop(piece, step.dim, step.depth, "for") for piece in self.pieces]

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
            tiled, loop = self._fuse(piece.handle, loop, f"{dim}_inner")
            self.epilogue = led
        if kind == "forall" and self.fill_follows:
            self._fuse_fill(loop)
        self.fill_follows &= kind == "forall"
        extents = tuple(sorted({min(e, size) for e in piece.extents[dim]}, reverse=True))
        moves = piece.moves_image or dim in self.form.space.operand_dims["A"]
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
        self._fuse(fill, loop, "fill_tile")

    def _fuse(self, producer: str, loop: str, hint: str) -> tuple[str, str]:
        """Compute what an op does inside of the loop that uses it; the op and the loop anew."""
        w = self.writer
        tile, around = w.name(hint), w.name("around")
        w.line(
            f"{tile}, {around} = transform.structured.fuse_into_containing_op {producer} "
            f"into {loop} : ({ANY}, {ANY}) -> ({ANY}, {ANY})"
        )
        return tile, around

    # Packing

    def _pack(self, step: Pack) -> None:
        if step.operand == "B":
            self._divide(self.form.space.col, self._unit(self.form.space.col))
            self.pieces = [self._pack_panels(piece) for piece in self.pieces]
        else:
            self._pack_image() if self.form.pads_image else self._pack_plain()

    def _pack_plain(self) -> None:
        self.pieces = [self._pack_rows(piece) for piece in self.pieces]

    def _pack_image(self) -> None:
        """Pad the block of the image where it is used: zeros, and the pixels that exist.

        Where no loop moves the image, its only block is the whole image. Blocks of a shorter
        length than others share their handle, and copy from the image padded as a whole.
        """
        self.pieces = [
            self._pack_rows(piece)
            if piece.merged
            else self._pad_block(piece)
            if piece.moves_image
            else piece
            for piece in self.pieces
        ]

    def _fill_pads(self) -> None:
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

    def _pad_block(self, piece: Piece) -> Piece:
        w = self.writer
        w.line("transform.apply_patterns to %func {")
        w.line("  transform.apply_patterns.tensor.merge_consecutive_insert_extract_slice")
        w.line(f"}} : {ANY}")
        block, padded, loop = w.name("block"), w.name("padded"), w.name("loop")
        for found, user in ((block, piece.handle), (padded, block)):
            w.line(f"{found} = transform.get_producer_of_operand {user}[0] : ({ANY}) -> {ANY}")
        w.line(f"{loop} = transform.get_parent_op {piece.handle} : ({ANY}) -> {ANY}")
        self._fuse(padded, loop, "padded_block")
        return piece

    def _pack_panels(self, piece: Piece) -> Piece:
        w, col = self.writer, self.form.space.col
        lanes = min(self.schedule.register.cols, *piece.extents[col])
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
        if self.epilogue is not None:
            led = w.name("packed_epilogue")
            w.line(
                f"{led} = transform.include @pack_epilogue_{lanes} failures(propagate) "
                f"({self.epilogue}) : ({ANY}) -> {ANY}"
            )
            self.epilogue, self.epilogue_lanes = led, lanes
        depths = piece.extents[self.form.space.stream]
        taps = (1,) * len(self.form.taps)
        lead = (1,) * len(self.form.space.lead)
        self._remember(copy, (*lead, 1, *taps, largest_divisor(depths, COPY_ROWS)))
        return replace(piece, handle=packed, lanes=lanes)

    def _pack_rows(self, piece: Piece) -> Piece:
        """A to a block of its own, in the order in which A lies, nothing padded."""
        w, space = self.writer, self.form.space
        zero = self.form.zero
        copied, pads, back = w.name("copied"), w.name("pad"), w.name("back")
        w.line(
            f"{copied}, {pads}, {back} = transform.structured.pad {piece.handle} "
            f"<{{padding_values = [{zero}], padding_dimensions = "
            f"[{self.form.dims.index(space.row)}, {self.form.dims.index(space.stream)}], "
            f'nofold_flags = [1], copy_back_op = "none"}}> : ({ANY}) -> ({ANY}, {ANY}, {ANY})'
        )
        producer, copy = w.name("rows"), w.name("row_copy")
        w.line(f"{producer} = transform.get_producer_of_operand {copied}[0] : ({ANY}) -> {ANY}")
        w.line(
            f"{copy} = transform.structured.rewrite_in_destination_passing_style {producer} "
            f": ({ANY}) -> {ANY}"
        )
        ones = (1,) * self.form.copied_dims
        neighbours = piece.extents[self.form.contiguous]
        self._remember(copy, (*ones, largest_divisor(neighbours, LARGEST_COPY)))
        return replace(piece, handle=copied)

    def sequences(self) -> list[str]:
        """The named sequences that the steps included."""
        form = self.form
        found = [
            pack_panels(lanes, _at(form.space.col, form.dims, lanes), form.panels_first)
            for lanes in self.panel_widths
        ]
        if self.epilogue_lanes:
            sizes = _at(form.space.col, form.result_dims, self.epilogue_lanes)
            along = {"bias": 0} if form.space.col in form.bias_dims else {}
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

    def _remember(self, copy: str, sizes: tuple[int, ...]) -> None:
        self.copies.setdefault(sizes, []).append(copy)

    # The register tile

    def _register(self, step: Register) -> None:
        space = self.form.space
        rows = [(dim, step.rows if dim == space.row else 1) for dim in space.row_dims]
        cols = [(space.col, step.cols)]
        for dim, size in cols + rows if step.outer == "cols" else rows + cols:
            self._tile(dim, size)
            self.writer.include("cleanup")
        for piece in self.pieces:
            self.writer.line(
                f"{self.writer.name('tile')} = transform.structured.generalize {piece.handle} "
                f": ({ANY}) -> {ANY}"
            )
