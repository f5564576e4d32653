"""The micro-kernel: its reduction loops, vectors, and accumulators in registers.

A register tile with all its unit dims is no contraction that vectorisation knows, and an
accumulator with unit dims is not hoisted out of the reduction. So unit dims go first.
That replaces the ops, and handles on them are lost; matchers on the iteration dims that
are left find them again.


Scripts of a split reduction: every element of a register tile has a vector of partial sums.

The reduction is tiled by as many elements as there are partial sums, and each tile adds to them
side by side. They stay in registers over the whole loop, and become one sum behind it. Where the
last tile is shorter, it adds to the first of them, in an iteration of its own.

"""

from collections.abc import Iterable

from tilewise.kernels.mlir.cpu.loops import Piece
from tilewise.kernels.mlir.payload.form import Form
from tilewise.kernels.mlir.transform.sequences import (
    add_lanes,
    contraction_matcher,
    epilogue_matcher,
    hoist_accumulators,
    peel,
)
from tilewise.kernels.mlir.transform.writer import ANY, Writer

Kinds = str


class KernelEmitter:
    """Writes what happens inside the register tile.

    Attributes:
        matchers: the kinds of iteration dims (`x` parallel, `k` reduction) that the
            script has to match.
        ends_in_registers: whether the epilogue was tiled down to the register tile.
        multiplies_apart: whether products of floats and their sums are ops of their own.
    """

    def __init__(
        self, form: Form, pieces: list[Piece], writer: Writer, ends_in_registers: bool
    ) -> None:
        self.form = form
        self.nest = form.nest
        self.ends_in_registers = ends_in_registers
        self.multiplies_apart = False
        self.epilogues: dict[str, tuple[int, ...]] = {}
        self.pieces = pieces
        self.writer = writer
        self.matchers: dict[Kinds, None] = {}
        self.has_columns_first = False

    def reduce(self) -> None:
        """Loops over the taps, then over the depth, one element at a time."""
        stream = self.nest.k
        taps = [tap for tap, extent in self.form.tap_extents.items() if extent > 1]
        self.writer.include("drop_unit_dims")
        if self.form.multiplies_columns_first:
            self._put_columns_first((*taps, stream))
        if taps:
            for kinds, marks in self._signatures((*taps, stream), taps):
                self._loops(kinds, marks)
            self.writer.include("drop_unit_dims")
        for kinds, marks in self._signatures((stream,), [stream]):
            innermost = self._loops(kinds, marks)[-1]
            self.writer.line(f'transform.annotate {innermost} "innermost" : {ANY}')
        self._split_tiles()

    def vectorize(self, fill: bool) -> None:
        """Vectors, accumulators carried by the loops, then the unrolling of the innermost one.

        Args:
            fill: whether the register tile is filled in place, by vectors then.
        """
        w, unroll = self.writer, self.nest.compute.unroll
        if fill:
            w.vectorize_fills()
        w.line(f"transform.structured.vectorize {w.collect('contraction')} : {ANY}")
        if self.ends_in_registers:
            extents = self._result_extents()
            parts = zip(extents.values(), self._part_sizes(extents), strict=True)
            left = tuple(size or extent for extent, size in parts if (size or extent) > 1)
            w.line(f"transform.structured.vectorize {self._epilogue(left)} : {ANY}")
        w.include("hoist_accumulators")
        if unroll > 1:
            w.line(f"// unroll factor={unroll}")
            loops = w.match_loops("innermost", "innermost")
            w.line(f"transform.loop.unroll {loops} factor = {unroll} : {ANY}")

    def sequences(self) -> list[str]:
        """The named sequences that vectors go through."""
        return [hoist_accumulators(self.form.widens)]

    def contraction_matchers(self) -> list[str]:
        """What finds the contraction where handles on it are lost."""
        body = self.form.body
        kinds = [contraction_matcher(f"contraction_{kind}", kind, body) for kind in self.matchers]
        return [*kinds, contraction_matcher("contraction", None, body)]

    def _signatures(
        self, reductions: tuple[str, ...], wanted: list[str]
    ) -> list[tuple[Kinds, list[int]]]:
        """The iteration dims that micro-kernels can have, and which of them are `wanted`.

        Slivers and short last chunks lack dims that other micro-kernels have.
        """
        found: dict[Kinds, list[int]] = {}
        for piece in self.pieces:
            for depth in piece.extents[self.nest.k]:
                dims = self._extents(piece, depth, reductions)
                if any(dim in wanted for dim in dims):
                    found[self._kinds(dims)] = [int(dim in wanted) for dim in dims]
        return list(found.items())

    def _extents(self, piece: Piece, depth: int, reductions: tuple[str, ...]) -> dict[str, int]:
        """The iteration dims that are left of a micro-kernel, in order, with their extents."""
        row, col = self.nest.row, self.nest.col
        extents = {
            **self.form.tap_extents,
            row: max(piece.extents[row]),
            col: max(piece.extents[col]) if piece.lanes is None else 1,
            self.nest.k: depth,
            "lane": piece.lanes or 1,
        }
        inner = (row, col, *reductions)
        order = [*(dim for dim in self.form.dims if dim in inner), "lane"]
        order = columns_first(order, col) if self.has_columns_first else order
        return {dim: extents[dim] for dim in order if extents[dim] > 1}

    def _put_columns_first(self, reductions: tuple[str, ...]) -> None:
        """Interchange the loops of micro-kernels as `columns_first` has them."""
        depths = [(piece, d) for piece in self.pieces for d in piece.extents[self.nest.k]]
        extents = [self._extents(piece, depth, reductions) for piece, depth in depths]
        self.has_columns_first = True
        for kinds, dims in {self._kinds(dims): list(dims) for dims in extents}.items():
            order = [dims.index(dim) for dim in columns_first(dims, self.nest.col)]
            if order != sorted(order):
                self.writer.interchange(self._match(kinds), order)

    def _kinds(self, dims: Iterable[str]) -> Kinds:
        return "".join("k" if dim in self.form.reductions else "x" for dim in dims)

    def _match(self, kinds: Kinds) -> str:
        self.matchers[kinds] = None
        return self.writer.collect(f"contraction_{kinds}")

    def _loops(self, kinds: Kinds, marks: list[int]) -> list[str]:
        _, loops = self.writer.tile_for(self._match(kinds), marks)
        for loop in loops:
            self.writer.line(f'transform.annotate {loop} "accumulates" : {ANY}')
        return loops

    def _split_tiles(self) -> None:
        """One op for each part of a register tile that one vector shape can hold.

        Widths such as 3 registers come register by register, since LLVM takes vectors apart
        badly unless their length is a power of two. Then rows come one by one as well: an
        element of A is multiplied by a whole row of B before the next one is loaded, where
        column by column all rows of A would have to be held (8x48 spilled an accumulator in
        every step, and lost a quarter). So do rows that are not neighbours in the image,
        since vectorisation wants operands without gaps.
        """
        w = self.writer
        parts = self._parts()
        if not parts:
            return
        self.multiplies_apart = self.form.body[0] == "arith.mulf"
        if self.ends_in_registers:
            sizes = self._part_sizes(self._result_extents())
            if any(sizes):
                self._unrolled(self._epilogue(tuple(self._result_extents().values())), sizes)
        for kinds, sizes in parts.items():
            self._unrolled(self._match(kinds), sizes)
        w.include("cleanup")
        w.include("drop_unit_dims")
        around = w.match_loops("accumulates", "around")
        w.line(f"transform.apply_patterns to {around} {{")
        w.line("  transform.apply_patterns.tensor.merge_consecutive_insert_extract_slice")
        w.line(f"}} : {ANY}")

    def _unrolled(self, handle: str, sizes: list[int]) -> None:
        """Tile an op and leave nothing of the loops; single rows are outermost."""
        order = sorted(range(len(sizes)), key=lambda dim: sizes[dim] != 1)
        for loop in reversed(self.writer.tile_for(handle, sizes, order)[1]):
            self.writer.line(f"transform.loop.unroll_full {loop} : {ANY}")

    def epilogue_matchers(self) -> list[str]:
        """What finds the epilogue's register tile, where there is one."""
        if not self.ends_in_registers:
            return []
        inputs = int(bool(self.form.bias_dims))
        return [epilogue_matcher(name, sizes, inputs) for name, sizes in self.epilogues.items()]

    def _epilogue(self, sizes: tuple[int, ...]) -> str:
        """A handle on the epilogue's tile, or its parts, of these sizes."""
        name = "_".join(["epilogue", *map(str, sizes)])
        self.epilogues[name] = sizes
        return self.writer.collect(name)

    def _result_extents(self) -> dict[str, int]:
        """The dims of the epilogue's register tile that are left, with their extents."""
        (piece,) = self.pieces
        return self._extents(piece, 1, ())

    def _parts(self) -> dict[Kinds, list[int]]:
        """For each kind of micro-kernel the tile sizes that split it, where it is split."""
        stream = self.nest.k
        found: dict[Kinds, list[int]] = {}
        for piece in self.pieces:
            for depth in piece.extents[stream]:
                extents = self._extents(piece, depth, (stream,))
                sizes = self._part_sizes(extents)
                if any(sizes):
                    kinds = self._kinds(extents)
                    known = found.get(kinds, sizes)
                    found[kinds] = [max(s) for s in zip(sizes, known, strict=True)]
        return found

    def _part_sizes(self, extents: dict[str, int]) -> list[int]:
        """What each dim of a register tile is split into; 0 for what stays whole."""
        chunks = {dim: self._chunk(dim, extent) for dim, extent in extents.items()}
        by_row = self.form.rows_apart or any(chunks.values())
        return [1 if by_row and dim == self.nest.row else chunks[dim] for dim in extents]

    def _chunk(self, dim: str, extent: int) -> int:
        """Width of the parts that a register tile's columns are split into; 0 for none."""
        return chunk_lanes(self.form, extent) if dim in (self.nest.col, "lane") else 0


def columns_first(dims: Iterable[str], col: str) -> list[str]:
    """The dims of a micro-kernel whose first factor has the columns, so that they come first.

    MLIR's outer products are of a first factor by a second one along the first and the second dim
    of a contraction; with the dims the other way round it makes vectors of rows.
    """
    return sorted(dims, key=lambda dim: dim not in (col, "lane"))


def chunk_lanes(form: Form, columns: int) -> int:
    """Columns of a register where a register tile's columns come register by register, else 0."""
    lanes = form.register_lanes
    return lanes if columns > lanes and columns.bit_count() > 1 else 0


def vector_lanes(form: Form) -> int:
    """Least elements of the vectors that the innermost loops of a nest multiply.

    A register's worth of columns, of partial sums where the reduction is split, or all there are:
    a sliver that comes register by register takes the tiles with it that look the same.
    """
    nest, register = form.nest, form.register_lanes
    if nest.compute.lanes > 1:
        return min(nest.compute.lanes, nest.depth, register)
    if form.spreads_channels:
        register -= register % form.group_extents["f"]  # whole groups
    return min(nest.tile.cols, nest.dim(nest.col).extent, register)


class InnerProductEmitter(KernelEmitter):
    """Writes the loop over the reduction, and what becomes of the partial sums."""

    def reduce(self) -> None:
        """A loop over the reduction in steps of the partial sums, a shorter last one apart."""
        w, stream, most = self.writer, self.nest.k, self.nest.compute.lanes
        self.multiplies_apart = self.form.body[0] == "arith.mulf"
        w.include("drop_unit_dims")
        found = self._signatures((stream,), [stream])
        for kinds, marks in found:
            depths = self._depths(kinds)
            lanes = min(most, max(depths))
            loop = self._partial_sums(self._match(kinds), [lanes * mark for mark in marks])
            if any(depth % lanes for depth in depths):
                self._peel(loop)
        w.include("cleanup")
        w.include("drop_unit_dims")
        if chunk := chunk_lanes(self.form, most):
            for kinds, marks in found:
                self._unrolled(self._match("x" * len(kinds)), [chunk * mark for mark in marks])
            w.include("cleanup")
        w.include("add_lanes")  # before sums of a single step look like a contraction

    def sequences(self) -> list[str]:
        """The named sequences that loops and vectors go through."""
        return [peel(), add_lanes(), *super().sequences()]

    def _depths(self, kinds: Kinds) -> list[int]:
        """The extents of the reduction of micro-kernels that have dims of these kinds."""
        stream = self.nest.k
        return [
            depth
            for piece in self.pieces
            for depth in piece.extents[stream]
            if self._kinds(self._extents(piece, depth, (stream,))) == kinds
        ]

    def _partial_sums(self, handle: str, sizes: list[int]) -> str:
        """Tile the reduction by adding to partial sums; the loop."""
        w = self.writer
        hints = ("no_sums", "partial_sums", "total", "loop")
        zeros, step, total, loop = (w.name(hint) for hint in hints)
        w.line(
            f"{zeros}, {step}, {total}, {loop} = "
            f"transform.structured.tile_reduction_using_for {handle} "
            f"by tile_sizes = {sizes} : ({ANY}) -> ({', '.join([ANY] * 4)})"
        )
        for whole in (zeros, total):
            w.line(f"transform.structured.vectorize {whole} : {ANY}")
        for mark in ("accumulates", "innermost"):
            w.line(f'transform.annotate {loop} "{mark}" : {ANY}')
        return loop

    def _peel(self, loops: str) -> None:
        """Shorter last iterations apart; loops without one stay as they are."""
        w = self.writer
        w.line(f"transform.foreach {loops} : {ANY} {{")
        w.line(f"^bb0(%each: {ANY}):")
        w.line(f"  transform.include @peel failures(suppress) (%each) : ({ANY}) -> ()")
        w.line("}")

    def _part_sizes(self, extents: dict[str, int]) -> list[int]:
        """Nothing comes in parts: vectors run along the reduction."""
        return [0 for _ in extents]
