"""The micro-kernel: its reduction loops, vectors, and accumulators in registers.

Vectorisation does not recognise a register tile with unit dims as a contraction, and accumulators
with unit dims are not hoisted out of the reduction, so unit dims are dropped first. That replaces
the ops; matchers on the remaining iteration dims find them again.
"""

from collections.abc import Iterable, Iterator

from tilewise.kernels.mlir.cpu.loops import LoopHandle
from tilewise.kernels.mlir.payload.form import LinalgForm
from tilewise.kernels.mlir.transform.sequences import (
    contraction_matcher,
    epilogue_matcher,
    hoist_accumulators,
    named_sequence,
)
from tilewise.kernels.mlir.transform.writer import ANY, SequenceWriter

Kinds = str
"""For each iteration dim of a micro-kernel `x` (parallel) or `k` (reduction)."""


class KernelEmitter:
    """Writes the inside of the register tile.

    `ends_in_registers` says whether the epilogue was tiled down to the register tile, and
    `multiplies_apart` whether products of floats and their sums are separate ops.
    """

    def __init__(
        self,
        form: LinalgForm,
        pieces: list[LoopHandle],
        writer: SequenceWriter,
        ends_in_registers: bool,
    ) -> None:
        self.form, self.nest, self.pieces, self.writer = form, form.nest, pieces, writer
        self.ends_in_registers = ends_in_registers
        self.multiplies_apart = False
        self._matched: dict[Kinds, None] = {}
        self._epilogues: dict[str, tuple[int, ...]] = {}
        self._has_columns_first = False

    def reduce(self) -> None:
        """Write loops over the taps, then over the depth, one element at a time."""
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
            self.writer.annotate(self._loops(kinds, marks)[-1], "innermost")
        self._split_tiles()

    def vectorize(self, fill: bool) -> None:
        """Write vectors, loop-carried accumulators, and the unrolling of the innermost loop.

        With `fill` the register tile is filled in place, by vectors.
        """
        w, unroll = self.writer, self.nest.compute.unroll
        if fill:
            w.vectorize_fills()
        w.vectorize(w.collect("contraction"))
        if self.ends_in_registers:
            extents = self._result_extents()
            parts = zip(extents.values(), self._part_sizes(extents), strict=True)
            left = tuple(size or extent for extent, size in parts if (size or extent) > 1)
            w.vectorize(self._epilogue(left))
        w.include("hoist_accumulators")
        if unroll > 1:
            w.line(f"// unroll factor={unroll}")
            loops = w.match_loops("innermost", "innermost")
            w.line(f"transform.loop.unroll {loops} factor = {unroll} : {ANY}")

    def matchers(self) -> list[str]:
        """Return the sequences that match contractions, and register tiles of the epilogue."""
        body, form = self.form.body, self.form
        inputs = int(bool(form.bias_dims)) + form.writes_apart + len(form.more_inputs)
        return [
            *(contraction_matcher(f"contraction_{kind}", kind, body) for kind in self._matched),
            contraction_matcher("contraction", None, body),
            *(epilogue_matcher(name, size, inputs) for name, size in self._epilogues.items()),
        ]

    def sequences(self) -> list[str]:
        """Return the named sequences for loops and vectors."""
        return [hoist_accumulators(self.form.widens)]

    def _signatures(
        self, reductions: tuple[str, ...], wanted: list[str]
    ) -> list[tuple[Kinds, list[int]]]:
        """Return the iteration dims that micro-kernels can have, and which of them are `wanted`."""
        found: dict[Kinds, list[int]] = {}
        for dims in self._kernels(reductions):
            if any(dim in wanted for dim in dims):
                found[self._kinds(dims)] = [int(dim in wanted) for dim in dims]
        return list(found.items())

    def _kernels(self, reductions: tuple[str, ...]) -> Iterator[dict[str, int]]:
        """Yield the iteration dims of each micro-kernel; slivers and short chunks lack some."""
        for piece in self.pieces:
            for depth in piece.extents[self.nest.k]:
                yield self._extents(piece, depth, reductions)

    def _extents(
        self, piece: LoopHandle, depth: int, reductions: tuple[str, ...]
    ) -> dict[str, int]:
        """Return the remaining iteration dims of a micro-kernel, in order, with extents."""
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
        order = _columns_first(order, col) if self._has_columns_first else order
        return {dim: extents[dim] for dim in order if extents[dim] > 1}

    def _put_columns_first(self, reductions: tuple[str, ...]) -> None:
        """Interchange the loops of micro-kernels as in `_columns_first`."""
        extents = list(self._kernels(reductions))
        self._has_columns_first = True
        for kinds, dims in {self._kinds(dims): list(dims) for dims in extents}.items():
            order = [dims.index(dim) for dim in _columns_first(dims, self.nest.col)]
            if order != sorted(order):
                self.writer.interchange(self._match(kinds), order)

    def _kinds(self, dims: Iterable[str]) -> Kinds:
        return "".join("k" if dim in self.form.reductions else "x" for dim in dims)

    def _match(self, kinds: Kinds) -> str:
        self._matched[kinds] = None
        return self.writer.collect(f"contraction_{kinds}")

    def _loops(self, kinds: Kinds, marks: list[int]) -> list[str]:
        _, loops = self.writer.tile_for(self._match(kinds), marks)
        for loop in loops:
            self.writer.annotate(loop, "accumulates")
        return loops

    def _split_tiles(self) -> None:
        """Leave one op for each part of a register tile that one vector shape can hold.

        Widths such as 3 registers are split into registers, since LLVM handles vectors well only if
        their length is a power of two. Rows are then split as well: an element of A is multiplied
        by a whole row of B before the next one is loaded, where column by column all rows of A
        would have to be held (8x48 spilled an accumulator in every step, and lost a quarter). Rows
        that are not contiguous in the image are also split, since vectorisation wants operands
        without gaps.
        """
        w = self.writer
        parts: dict[Kinds, list[int]] = {}
        for extents in self._kernels((self.nest.k,)):
            sizes = self._part_sizes(extents)
            if any(sizes):
                known = parts.get(self._kinds(extents), sizes)
                parts[self._kinds(extents)] = [max(s) for s in zip(sizes, known, strict=True)]
        if not parts:
            return
        self.multiplies_apart = self.form.body[0] == "arith.mulf"
        if self.ends_in_registers:
            sizes = self._part_sizes(self._result_extents())
            if any(sizes):
                self._unrolled(self._epilogue(tuple(self._result_extents().values())), sizes)
                # Over a depth of 1 the contraction is elementwise and matched as well. Its parts
                # are matched again below, and loops over them are unrolled if extents are static.
                w.include("cleanup")
        for kinds, sizes in parts.items():
            self._unrolled(self._match(kinds), sizes)
        w.include("cleanup")
        w.include("drop_unit_dims")
        w.merge_slices([w.match_loops("accumulates", "around")])

    def _unrolled(self, handle: str, sizes: list[int]) -> None:
        """Tile an op and unroll all loops; single rows are outermost."""
        order = sorted(range(len(sizes)), key=lambda dim: sizes[dim] != 1)
        self.writer.unroll_full(self.writer.tile_for(handle, sizes, order)[1])

    def _epilogue(self, sizes: tuple[int, ...]) -> str:
        """Return a handle on the epilogue's tile, or its parts, of these sizes."""
        name = "_".join(["epilogue", *map(str, sizes)])
        self._epilogues[name] = sizes
        return self.writer.collect(name)

    def _result_extents(self) -> dict[str, int]:
        """Return the remaining dims of the epilogue's register tile, with their extents."""
        (piece,) = self.pieces
        return self._extents(piece, 1, ())

    def _part_sizes(self, extents: dict[str, int]) -> list[int]:
        """Return the parts of each dim of a register tile; 0 for a whole dim."""
        columns = (self.nest.col, "lane")
        chunks = {d: _chunk(self.form, n) if d in columns else 0 for d, n in extents.items()}
        by_row = self.form.rows_apart or any(chunks.values())
        return [1 if by_row and dim == self.nest.row else chunks[dim] for dim in extents]


class InnerProductEmitter(KernelEmitter):
    """Writes a split reduction: every element of a register tile has a vector of partial sums.

    Each tile of the reduction adds to the partial sums side by side. They stay in registers over
    the whole loop, and become one sum after it. A shorter last tile adds to the first of them, in
    an iteration of its own.
    """

    def reduce(self) -> None:
        """Write a loop over the reduction in steps of the partial sums, then a shorter one."""
        w, stream, most = self.writer, self.nest.k, self.nest.compute.lanes
        self.multiplies_apart = self.form.body[0] == "arith.mulf"
        w.include("drop_unit_dims")
        found = self._signatures((stream,), [stream])
        for kinds, marks in found:
            kernels = (dims for dims in self._kernels((stream,)) if self._kinds(dims) == kinds)
            depths = [dims.get(stream, 1) for dims in kernels]
            lanes = min(most, max(depths))
            loop = self._partial_sums(self._match(kinds), [lanes * mark for mark in marks])
            if any(depth % lanes for depth in depths):  # loops without a shorter last tile stay
                peel = f"transform.include @peel failures(suppress) (%each) : ({ANY}) -> ()"
                w.foreach(loop, [peel], op="%each")
        w.include("cleanup")
        w.include("drop_unit_dims")
        if chunk := _chunk(self.form, most):
            for kinds, marks in found:
                self._unrolled(self._match("x" * len(kinds)), [chunk * mark for mark in marks])
            w.include("cleanup")
        w.include("add_lanes")  # before sums of a single step look like a contraction

    def sequences(self) -> list[str]:
        """Return the named sequences for loops and vectors."""
        return [named_sequence("peel"), named_sequence("add_lanes"), *super().sequences()]

    def _partial_sums(self, handle: str, sizes: list[int]) -> str:
        """Tile the reduction by adding to partial sums; return the loop."""
        w = self.writer
        op = f"structured.tile_reduction_using_for {handle} by tile_sizes = {sizes}"
        zeros, _, total, loop = w.handles(("no_sums", "partial_sums", "total", "loop"), op)
        for whole in (zeros, total):
            w.vectorize(whole)
        w.annotate(loop, "accumulates", "innermost")
        return loop

    def _part_sizes(self, extents: dict[str, int]) -> list[int]:
        """Keep everything whole: vectors run along the reduction."""
        return [0 for _ in extents]


def _columns_first(dims: Iterable[str], col: str) -> list[str]:
    """Put the columns first, for a micro-kernel whose first factor has them.

    MLIR's outer products take the first factor along the first dim of a contraction and the second
    along the second dim; in the other order vectors would be rows.
    """
    return sorted(dims, key=lambda dim: dim not in (col, "lane"))


def _chunk(form: LinalgForm, columns: int) -> int:
    """Return the columns of a register if a tile is split into registers, else 0."""
    lanes = form.register_lanes
    return lanes if columns > lanes and columns.bit_count() > 1 else 0


def vector_lanes(form: LinalgForm) -> int:
    """Return the least elements of the vectors that the innermost loops of a nest multiply.

    A register of columns, or of partial sums if the reduction is split, or all there are: a sliver
    that is split into registers also splits the tiles that look the same.
    """
    nest, register = form.nest, form.register_lanes
    if nest.compute.lanes > 1:
        return min(nest.compute.lanes, nest.depth, register)
    if form.spreads_channels:
        register -= register % form.group_extents["f"]  # whole groups
    return min(nest.tile.cols, nest.dim(nest.col).extent, register)
