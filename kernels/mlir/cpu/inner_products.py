"""Scripts of a split reduction: every element of a register tile has a vector of partial sums.

The reduction is tiled by as many elements as there are partial sums, and each tile adds to them
side by side. They stay in registers over the whole loop, and become one sum behind it. Where the
last tile is shorter, it adds to the first of them, in an iteration of its own.
"""

from tilewise.kernels.mlir.cpu.register_tile import (
    REGISTER_BYTES,
    KernelEmitter,
    Kinds,
    chunk_lanes,
)
from tilewise.kernels.mlir.transform.sequences import add_lanes, peel
from tilewise.kernels.mlir.transform.writer import ANY
from tilewise.kernels.nest import Nest

REGISTERS = 32  # of the widest vectors


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


def holds_tile(nest: Nest, element_bytes: int) -> bool:
    """Whether registers hold all partial sums of the tile, and what a step reads.

    Without partial sums every element of a tile has one lane of a register.
    """
    tile, lanes = nest.tile, nest.compute.lanes
    vectors = -(-lanes * element_bytes // REGISTER_BYTES)
    return lanes == 1 or vectors * tile.rows * tile.cols + tile.cols + 1 <= REGISTERS
