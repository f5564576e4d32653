"""The loops and stages of a nest as transform operations, one commented block per node.

Vectorisation needs static shapes, and blocks that do not divide an extent would have
`min(size, rest)`. An op is therefore split after the last whole block, and again after the last
whole register tile. Ops with the same further treatment (whole blocks and a shorter block of whole
tiles) share one handle; a sliver narrower than the register tile becomes a piece of its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.mlir.payload.form import LinalgForm
from tilewise.kernels.mlir.payload.tensors import zero_of
from tilewise.kernels.mlir.transform.sequences import pack_epilogue, pack_panels
from tilewise.kernels.mlir.transform.writer import ANY, MERGE_SLICES, SequenceWriter, types
from tilewise.kernels.nest import Compute, Fetch, Layout, Loop, LoopKind, Nest, Role, Stage, Store

LARGEST_COPY = 256
COPY_ROWS = 8
PEEL = f"%w, %r = transform.include @peel_ops failures(propagate) (%op) : ({ANY}) -> ({types(2)})"
UNKNOWN = 1 << 40  # more than any size of a range
REGISTERS = 32  # of the widest vectors


@dataclass(frozen=True)
class LoopHandle:
    """One handle on the contraction or parts of it, and what is known about its ops.

    Attributes:
        extents: possible extents of each dim; several if whole blocks and a shorter one share it.
        lanes: panel width of packed B; None while B is read in place.
        merged: whether the handle stands for several ops.
        moves_image: whether the innermost loop around it moves A, for a convolution the image.
        loops: the loops around it, outermost first, by the handles that they were made with.
    """

    handle: str
    extents: dict[str, tuple[int, ...]]
    lanes: int | None = None
    merged: bool = False
    moves_image: bool = False
    loops: tuple[str, ...] = ()

    def with_extent(self, handle: str, dim: str, extents: tuple[int, ...]) -> "LoopHandle":
        """Return the piece with another handle and new extents of `dim`."""
        merged = self.merged or len(extents) > 1
        return replace(self, handle=handle, extents={**self.extents, dim: extents}, merged=merged)


def blocks(nest: Nest, writer: SequenceWriter) -> Iterator[Loop | Stage | Compute]:
    """Yield the nodes that have operations, with a comment before and a cleanup after each.

    Prefetches and nontemporal stores are comments alone.
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

    The epilogue leads as long as possible: loops over the result are made of it, with contraction
    and fill fused. It stays behind at the first loop over the reduction, since it needs whole sums,
    and where the contraction is split for static shapes. It then meets the block in cache; if it
    leads to the end, in registers.

    Attributes:
        pieces: the contraction; each node replaces them by tiled, split or packed ones.
        epilogue: the handle of the epilogue while it leads.
        fill_follows: whether the zeros of C are written in the loops so far.
        packs: the stages.
    """

    def __init__(self, form: LinalgForm, contraction: str, writer: SequenceWriter) -> None:
        self.form, self.nest, self.writer = form, form.nest, writer
        sizes = self.nest.extents | dict.fromkeys(form.dynamic, UNKNOWN)
        extents: dict[str, tuple[int, ...]] = {dim: (size,) for dim, size in sizes.items()}
        self.pieces = [LoopHandle(contraction, extents)]
        self.epilogue = "%epilogue" if form.has_epilogue else None
        self.fill_follows = form.starts_from_fill
        self.packs = PackEmitter(form, writer)

    def run(self) -> None:
        """Write every node down to the register tile."""
        if self.form.dynamic and isinstance(self.nest.body[0], Stage):
            self._box()
        for node in blocks(self.nest, self.writer):
            if isinstance(node, Stage):
                self._pack(node)
            elif isinstance(node, Compute):
                self._finish()
            else:
                # parallel iterations would each allocate their sums, of an unknown extent
                is_serial = self.form.writes_apart and self.form.dynamic
                kind = "for" if is_serial or node.kind is LoopKind.K_BLOCK else "forall"
                self._tile(node.dim, node.step, kind)
        if self.form.pads_image:
            self.packs.fill_pads()

    def _box(self) -> None:
        """Write a loop of one trip: without any, bufferization copies a C of unknown extent."""
        w, (piece,) = self.writer, self.pieces
        part, loop = w.boxed(self.epilogue or piece.handle)
        if self.epilogue is not None:
            self.epilogue = part
            part, loop = w.fuse(piece.handle, loop, "inner")
        if self.fill_follows:
            w.fuse(w.match("linalg.fill", "fill"), loop, "fill_tile")
        self.pieces = [replace(piece, handle=part)]
        w.include("cleanup")

    def _divide(self, dim: str, size: int) -> None:
        """Split the pieces until blocks of `size` have static shapes along `dim`.

        A shorter block is a multiple of a register tile's extent.
        """
        if dim in self.form.dynamic:
            return
        out: list[LoopHandle] = []
        for piece in self.pieces:
            extents, panel = piece.extents[dim], self._panel(piece, dim)
            unit = self.nest.unit(dim) if panel == 1 else panel
            if len(extents) > 1:
                _check_uniform(dim, extents, size, unit)
                out.append(piece)
            else:
                out += self._split(piece, dim, size, unit)
        self.pieces = out

    def _panel(self, piece: LoopHandle, dim: str) -> int:
        """Return the columns of a step along `dim`: those of a panel once B is packed, else 1."""
        return piece.lanes if piece.lanes and dim == self.nest.col else 1

    def _split(self, piece: LoopHandle, dim: str, size: int, unit: int) -> list[LoopHandle]:
        w, extent = self.writer, piece.extents[dim][0]
        whole = extent - extent % size
        units = (extent - whole) // unit * unit
        main = tuple(part for part in (whole, units) if part)
        sliver = extent - whole - units
        parts = (*main, sliver) if sliver else main
        if len(parts) == 1:
            return [piece]
        self.fill_follows, self.epilogue = False, None
        w.line(f"// static shapes: {dim} = {' + '.join(map(str, parts))}")
        split = w.split_each if piece.merged else w.split
        axis, step = self.form.dims.index(dim), self._panel(piece, dim)
        handles, rest = list[str](), piece.handle
        for part in parts[:-1]:
            head, rest = split(rest, part // step, axis, dim)
            handles.append(head)
        handles.append(rest)
        out = []
        if main:
            out.append(piece.with_extent(w.merged(handles[: len(main)], "blocks"), dim, main))
        if sliver:
            out.append(piece.with_extent(handles[-1], dim, (sliver,)))
        return out

    def _tile(self, dim: str, size: int, kind: str = "forall") -> None:
        is_tile = 1 < size == self.nest.unit(dim)
        if dim in self.form.dynamic and is_tile and max(self.pieces[0].extents[dim]) > size:
            self.fill_follows, self.epilogue = False, None
            self.pieces = [part for piece in self.pieces for part in self._peel(piece, dim, size)]
            return
        self._divide(dim, size)
        self.pieces = [self._loop(piece, dim, size, kind) for piece in self.pieces]

    def _peel(self, piece: LoopHandle, dim: str, size: int) -> Iterator[LoopHandle]:
        """Yield static parts of a dim that is known at run time alone: tiles, and shorter ones.

        A loop over tiles leaves fewer rows than a tile. A loop for each number of them follows, and
        one has a single trip, the others none.
        """
        w, axis = self.writer, self.form.dims.index(dim)
        w.line(f"// static shapes: {dim} = tiles of {size}, and one tile of fewer")
        op, wholes = piece.handle, list[str]()
        for rows in range(size, 1, -1):
            # the outer loop makes the extent an affine.min, on which the inner one can be peeled
            op, _ = w.tile(op, axis, rows, dim, "for")
            _, loop = w.tile(op, axis, rows, dim, "for")
            whole, op = w.foreach(loop, [PEEL], (f"{dim}_whole", f"{dim}_rest"), ("%w", "%r"))
            wholes.append(whole)
        yield replace(
            piece.with_extent(w.merged(wholes, "blocks"), dim, tuple(range(size, 1, -1))),
            merged=True,
        )
        yield replace(piece.with_extent(w.tile(op, axis, 1, dim, "for")[0], dim, (1,)), merged=True)

    def _loop(self, piece: LoopHandle, dim: str, size: int, kind: str) -> LoopHandle:
        """Tile one piece; a piece of a single block needs no loop."""
        if max(piece.extents[dim]) <= size:
            return piece
        w, form = self.writer, self.form
        self.epilogue = self.epilogue if kind == "forall" else None
        steps = size // self._panel(piece, dim)
        if self.epilogue is None:
            tiled, loop = w.tile(piece.handle, form.dims.index(dim), steps, dim, kind)
        else:
            axis = form.result_dims.index(dim)
            self.epilogue, loop = w.tile(self.epilogue, axis, steps, dim, kind)
            tiled, loop = w.fuse(piece.handle, loop, f"{dim}_inner")
        self.fill_follows &= kind == "forall"
        if self.fill_follows:  # a part split off adds to what the others left, not to the fill
            w.fuse(w.match("linalg.fill", "fill"), loop, "fill_tile")
        extents = tuple(sorted({min(e, size) for e in piece.extents[dim]}, reverse=True))
        moves, loops = dim in form.moving_dims, (*piece.loops, loop)
        return replace(piece.with_extent(tiled, dim, extents), moves_image=moves, loops=loops)

    def _pack(self, stage: Stage) -> None:
        copies = {
            Layout.PANELS: self._copy_panels,
            Layout.PANELS_ALONG_K: self.packs.copy_columns,
            Layout.ROWS: self.packs.copy_rows,
            Layout.IMAGE: self.packs.copy_image,
        }
        if stage.operand == "A" and self.nest.row in self.form.dynamic:
            self.writer.line(f"// {stage}: read in place, since {self.nest.row} is not known")
            return
        if any(max(self.pieces[0].extents[dim]) > 1 for dim in self.form.dynamic):
            self.epilogue = None  # packing does not fold with unpacking where C's shape is unknown
        if stage.operand == "B":
            self._divide(self.nest.col, self.nest.tile.cols)
        self.pieces = [copies[stage.layout](piece) for piece in self.pieces]

    def _copy_panels(self, piece: LoopHandle) -> LoopHandle:
        packed = self.packs.copy_panels(piece)
        if self.epilogue is not None and packed.lanes:
            self.epilogue = self.packs.reshape_epilogue(self.epilogue, packed.lanes)
        return packed

    def _finish(self) -> None:
        """Generalise register tiles for the matchers.

        If registers cannot hold all partial sums of a tile, they hold those of a row or column.
        """
        if not _holds_tile(self.form):
            dim = self.nest.row if self.nest.tile.rows > 1 else self.nest.col
            self.writer.line(f"// registers hold the sums of one {dim}")
            self._tile(dim, 1)
            self.writer.include("cleanup")
        for piece in self.pieces:
            self.writer.generalize(piece.handle, "tile")


def _check_uniform(dim: str, extents: tuple[int, ...], size: int, unit: int) -> None:
    """Raise LoweringError if a block that is already a remainder would need another split."""
    for extent in extents:
        if extent % unit or (extent > size and extent % size):
            raise LoweringError(
                f"dim {dim}: blocks of {' and '.join(map(str, extents))} share one loop nest, "
                f"and {size} does not divide {extent}; use one tile step for {dim}, or sizes "
                f"that divide each other"
            )


def _holds_tile(form: LinalgForm) -> bool:
    """Return whether registers hold all partial sums of the tile, and the operands of a step.

    Without partial sums every element of a tile has one lane of a register.
    """
    tile, lanes = form.nest.tile, form.nest.compute.lanes
    vectors = -(-lanes // form.register_lanes)
    return lanes == 1 or vectors * tile.rows * tile.cols + tile.cols + 1 <= REGISTERS


class PackEmitter:
    """Writes the stages of a nest: panels of B, rows of A, and blocks of a padded image.

    Their copies are tiled and vectorised after all loops exist.
    """

    def __init__(self, form: LinalgForm, writer: SequenceWriter) -> None:
        self.form, self.nest, self.writer = form, form.nest, writer
        self._panel_widths: dict[int, None] = {}
        self._epilogue_lanes = 0
        self._copies: dict[tuple[int, ...], list[str]] = {}
        self._padding_loops = set[str]()

    def copy_panels(self, piece: LoopHandle) -> LoopHandle:
        """Copy B to panels of columns; a piece narrower than a panel has narrower ones."""
        w = self.writer
        lanes = min(self.nest.tile.cols, *piece.extents[self.nest.col])
        self._panel_widths[lanes] = None
        hints, include = ("packed", "panels"), f"include @pack_panels_{lanes} failures(propagate)"
        if piece.merged:
            each = f"%p, %c = transform.{include} (%op) : ({ANY}) -> ({types(2)})"
            packed, copy = w.foreach(piece.handle, [each], hints, ("%p", "%c"))
        else:
            packed, copy = w.handles(hints, f"{include} ({piece.handle})")
        ones = (1,) * (len(self.nest.named(Role.LEAD)) + 1 + len(self.form.tap_extents))
        self._remember(copy, (*ones, largest_divisor(piece.extents[self.nest.k], COPY_ROWS)))
        return replace(piece, handle=packed, lanes=lanes)

    def copy_columns(self, piece: LoopHandle) -> LoopHandle:
        """Copy B to columns that are contiguous along the reduction, for inner products."""
        w, nest = self.writer, self.nest
        if self.form.transposes_columns:
            packed, copy = self._copied(piece.handle, self.form.operands[1], nest.col, "column")
        else:
            packed = w.handle("transposed", f"structured.transpose_matmul {piece.handle} <rhs>")
            copy = w.producer(packed, 1, "column_copy")
        ones = (1,) * (1 + len(nest.named(Role.LEAD)))
        self._remember(copy, (*ones, largest_divisor(piece.extents[nest.k], LARGEST_COPY)))
        return replace(piece, handle=packed)

    def reshape_epilogue(self, epilogue: str, lanes: int) -> str:
        """Give the epilogue's C the shape that packing B gives it."""
        self._epilogue_lanes = lanes
        include = f"include @pack_epilogue_{lanes} failures(propagate) ({epilogue})"
        return self.writer.handle("packed_epilogue", include)

    def copy_rows(self, piece: LoopHandle) -> LoopHandle:
        """Copy A to a block of its own in the order of A, without padding."""
        copied, copy = self._copied(piece.handle, self.form.operands[0], self.nest.row, "row")
        ones = (1,) * self.form.copied_dims
        neighbours = piece.extents[self.form.contiguous]
        self._remember(copy, (*ones, largest_divisor(neighbours, LARGEST_COPY)))
        return replace(piece, handle=copied)

    def copy_image(self, piece: LoopHandle) -> LoopHandle:
        """Copy a block of the image, padded where it is used.

        If no loop moves the image, its only block is the whole image. Shorter blocks share a handle
        with others, and copy from the whole padded image.
        """
        if piece.merged or not self.form.pads_image:
            return self.copy_rows(piece)
        if piece.moves_image and self._padding_loops.isdisjoint(piece.loops):
            # Fuse zeros, and the pixels that exist, into the loop around the piece, for all pieces
            # in it at once: afterwards a block of padding alone has no tensor.pad to fuse.
            w = self.writer
            self._padding_loops.add(piece.loops[-1])
            w.apply_patterns("%func", MERGE_SLICES)
            padded = w.producer(
                w.producer(piece.handle, self.form.image_operand, "block"), 0, "padded"
            )
            w.fuse(padded, w.handle("loop", f"get_parent_op {piece.handle}"), "padded_block")
        return piece

    def fill_pads(self) -> None:
        """Write padded blocks as zeros first, then the pixels."""
        w = self.writer
        w.line("// padded blocks: zeros first, then the pixels")
        filled = w.in_place(w.match("tensor.pad", "pads"), "filled")
        w.generalize(w.producer(filled, 1, "zeros"), "plain")  # no more a fill, as that of C is

    def sequences(self) -> list[str]:
        """Return the named sequences that the stages include."""
        form, col = self.form, self.nest.col
        found = [
            pack_panels(lanes, _at(col, form.dims, lanes), form.panels_first, form.operands[1])
            for lanes in self._panel_widths
        ]
        if self._epilogue_lanes:
            sizes = _at(col, form.result_dims, self._epilogue_lanes)
            along = {"bias": 0} if col in form.bias_dims else {}
            first = int(bool(form.bias_dims))
            inputs = [("sums", True)] * form.writes_apart + [*form.more_inputs, ("c", True)]
            moving = {name: first + at for at, (name, moves) in enumerate(inputs) if moves}
            operands = along | moving
            found.append(pack_epilogue(self._epilogue_lanes, sizes, operands))
        return found

    def vectorize_copies(self) -> None:
        """Tile the copies of the packs to a few vectors each, and vectorise them.

        Equal packs of a block become one op by CSE, so their handles are merged too.
        """
        w = self.writer
        if not self._copies:
            return
        w.line("// the copies of the packs")
        tiled = []
        for sizes, handles in self._copies.items():
            merged = w.name("copies")
            w.line(f"{merged} = transform.merge_handles deduplicate {', '.join(handles)} : {ANY}")
            tiled.append(w.tile_for(merged, sizes)[0])
        w.include("cleanup")
        for handle in tiled:
            w.vectorize(handle)

    def _copied(self, handle: str, operand: int, dim: str, name: str) -> tuple[str, str]:
        """Let the op read a copy of what `dim` and the reduction move; return it and the copy."""
        w, dims = self.writer, self.form.dims
        moving = [dims.index(moved) for moved in (dim, self.nest.k) if moved in dims]
        nofold = [int(index == operand) for index in range(operand + 1)]
        zeros = [zero_of(self.form.element)] * len(nofold)
        copied = w.pad(handle, ("copied", "pad", "back"), zeros, moving, nofold)
        return copied, w.in_place(w.producer(copied, operand, f"{name}s"), f"{name}_copy")

    def _remember(self, copy: str, sizes: tuple[int, ...]) -> None:
        self._copies.setdefault(sizes, []).append(copy)


def largest_divisor(extents: tuple[int, ...], limit: int) -> int:
    """Return the largest divisor of all extents that is at most `limit`."""
    common = gcd(*extents)
    return max(d for d in range(1, min(limit, common) + 1) if common % d == 0)


def _at(dim: str, dims: tuple[str, ...], size: int) -> list[int]:
    """Return `size` at the position of `dim`, zeros elsewhere."""
    return [size if name == dim else 0 for name in dims]
