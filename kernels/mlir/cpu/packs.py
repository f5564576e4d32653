"""Packs as transform operations: panels of B, rows of A, and blocks of a padded image."""

from dataclasses import replace
from math import gcd

from tilewise.kernels.mlir.cpu.pieces import Piece
from tilewise.kernels.mlir.payload.form import Form
from tilewise.kernels.mlir.transform.sequences import pack_epilogue, pack_panels
from tilewise.kernels.mlir.transform.writer import ANY, Writer
from tilewise.kernels.nest import Role

LARGEST_COPY = 256
COPY_ROWS = 8


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
