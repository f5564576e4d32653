"""Scripts of convolutions with few channels in a group: every tap of every vector an op.

A register tile is taken apart until an op multiplies one vector of the image with one of the
filter. All of its loops are unrolled, so sums are values that no loop carries, and LLVM loads what
several ops read once.
"""

from dataclasses import replace
from math import gcd

from kernels.mlir.cpu.pieces import Piece
from kernels.mlir.cpu.register_tile import REGISTER_BYTES
from kernels.mlir.cpu.steps import StepEmitter
from kernels.mlir.transform.matchers import contraction_matcher, epilogue_matcher
from kernels.mlir.transform.writer import ANY
from kernels.schedule import Register, Schedule, Step, Tile


def of_groups(schedule: Schedule, group: int, col: str) -> Schedule:
    """The schedule in terms of groups: sizes in channels of the result become numbers of groups."""
    return Schedule(tuple(_of_groups(step, group, col) for step in schedule.steps))


def _of_groups(step: Step, group: int, col: str) -> Step:
    if isinstance(step, Tile) and step.dim == "co":
        return replace(step, size=step.size // group)
    if isinstance(step, Register) and col == "co":
        return replace(step, cols=step.cols // group)
    return step


class WindowEmitter(StepEmitter):
    """Writes the steps of a schedule whose columns span the groups."""

    def _register(self, step: Register) -> None:
        """Pad what the loops so far move, then tile."""
        if self.form.pads_image:
            self.pieces = [self._padded(piece) for piece in self.pieces]
        super()._register(step)

    def _padded(self, piece: Piece) -> Piece:
        """Pad the block that the loops move, where all blocks are alike; else the whole image."""
        return piece if piece.merged else self.packs.pad_image(piece)

    def finish(self) -> None:
        """Take the register tiles apart: to single vectors, and then to single taps."""
        w, form = self.writer, self.form
        for piece in self.pieces:
            op = w.name("tile")
            w.line(f"{op} = transform.structured.generalize {piece.handle} : ({ANY}) -> {ANY}")
            self._unrolled(op, [self._vector(piece, dim) for dim in form.dims])
        taps = {**form.tap_extents, form.space.stream: form.space.extent(form.space.stream)}
        w.include("cleanup")
        self._unrolled(w.collect("contraction"), [int(taps.get(d, 1) > 1) for d in form.dims])
        if self.epilogue is not None:
            (piece,) = self.pieces
            self._unrolled(self.epilogue, [self._vector(piece, d) for d in form.result_dims])

    def vectorize(self) -> None:
        """Vectors for all that is left of the register tiles."""
        w = self.writer
        w.include("drop_unit_dims")
        if self.fill_follows:
            w.vectorize_fills()
        w.line(f"transform.structured.vectorize {w.collect('contraction')} : {ANY}")
        if self.epilogue is not None:
            w.line(f"transform.structured.vectorize {w.collect('epilogue')} : {ANY}")
        w.include("hoist_accumulators")

    def matchers(self) -> list[str]:
        """What finds the vectors' ops."""
        form = self.form
        found = [contraction_matcher("contraction", None, form.body)]
        if self.epilogue is not None:
            (piece,) = self.pieces
            sizes = [self._vector(piece, dim) or self._whole(dim) for dim in form.result_dims]
            kept = tuple(size for size in sizes if size > 1)
            found.append(epilogue_matcher("epilogue", kept, int(bool(form.bias_dims))))
        return found

    def _vector(self, piece: Piece, dim: str) -> int:
        """What a dim is cut into to leave single vectors; 0 where it stays whole."""
        col, group = self.form.space.col, self._whole("f")
        if dim == col:
            lanes = REGISTER_BYTES // self.form.accumulator_bytes
            return _cut(piece.extents[dim], lanes // group if col == "co" else lanes)
        if dim == "f":
            return int(group > 1 and col != "co")
        extents = piece.extents.get(dim, (1,))
        return int(dim not in self.form.reductions and max(extents) > 1)

    def _whole(self, dim: str) -> int:
        """The extent of a dim that no step speaks of; 1 for one that there is not."""
        return self.form.group_extents.get(dim, 1)

    def _unrolled(self, handle: str, sizes: list[int]) -> None:
        """Tile ops and leave nothing of the loops."""
        if any(sizes):
            _, loops = self.writer.tile_for(handle, sizes)
            for loop in reversed(loops):
                self.writer.line(f"transform.loop.unroll_full {loop} : {ANY}")


def _cut(extents: tuple[int, ...], lanes: int) -> int:
    """The columns of a vector: all that a short piece has, else what divides every piece."""
    return extents[0] if extents[0] <= lanes else gcd(*extents, max(1, lanes))
