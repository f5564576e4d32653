"""Register tiles of windows, tap by tap: all vectors of a tap come before the next tap.

Long sums want it. Of one vector after the other, each addition waits for the last one, and what
other vectors read is held meanwhile. Where channels are spread over lanes, a tile spreads each
pixel once. Elsewhere the taps of a large tile stay loops (docs/experiments/0052).
"""

from dataclasses import replace
from math import prod

from tilewise.kernels.mlir.cpu.panes import Pane, Part
from tilewise.kernels.mlir.cpu.window_tile import WindowTiles, lanes_along
from tilewise.kernels.mlir.payload.form import Form
from tilewise.kernels.mlir.transform.writer import ANY, Writer

MOST_BLOCKS = 4
"""Blocks of columns that are written out one by one; 21 of 2x48 take longer than a minute."""

MOST_AT_ONCE = 128
"""Vectors that code without a loop multiplies. Where a tile's taps are more, LLVM takes the weights
of all of them out of the loops over tiles, and reads each back from the stack as a whole vector."""


class TapTiles(WindowTiles):
    """Writes what becomes of register tiles of several inputs."""

    @classmethod
    def serve(cls, form: Form, panes: list[Pane]) -> bool:
        """Whether sums are long, and no tap is known to lie in the padding."""
        beside = form.pads_taps or any(pane.starts for pane in panes)
        is_long = form.spreads_channels or form.nest.dim(form.nest.k).extent > 1
        return is_long and not beside

    def take_apart(self) -> None:
        """Leave single taps of single vectors, all vectors of a tap before the next tap.

        Sums are values that loops over the taps carry; some of those are unrolled as well. From the
        last pane to the first: pixels that are spread for one would else be taken for those that
        follow.
        """
        w = self.writer
        for pane in reversed(self.panes):
            self._tap_by_tap(pane)
        w.include("cleanup")

    def _tap_by_tap(self, pane: Pane) -> None:
        w, form = self.writer, self.form
        result, box = w.boxed(pane.result)
        product, box = w.fuse(pane.product, box, "product")
        w.merge_slices([box])
        zeros, box = w.fuse(w.sliced(product, 2), box, "zeros")
        pixels = fuse_spread(w, form, product, box)[0] if form.spreads_channels else ""
        extents = self.reductions
        op, loops = self.single(w.generalize(product, "window"), extents)
        apart = self._loops_apart(pane, [n for d in form.dims if (n := extents.get(d, 1)) > 1])
        for depth, loop in enumerate(loops):
            w.line(f'transform.annotate {loop} "accumulates" : {ANY}')
            if depth >= apart:
                w.line(f'transform.annotate {loop} "taps" : {ANY}')
        sizes = self.cut_sizes(pane)
        if not form.has_epilogue:
            w.generalize(result, "stored")  # a copy, so that sums are written to C itself
        cuts = [(op, sizes), (zeros, sizes)]
        cuts += [(result, sizes)] if form.has_epilogue else []
        cuts += [(pixels, [1, 1, 1])] if form.spreads_channels else []
        for handle, cut in cuts:
            tiled, loops = w.tile_for(handle, cut)
            if handle == zeros:
                w.generalize(tiled, "start")
            for loop in reversed(loops):
                w.line(f"transform.loop.unroll_full {loop} : {ANY}")

    def _loops_apart(self, pane: Pane, trips: list[int]) -> int:
        """How many of the loops over taps stay loops, outermost first.

        Pixels that are spread are known to LLVM as registers in code without loops alone.
        """
        if self.form.spreads_channels:
            return 0
        vectors = prod(pane.extents[dim] for dim in self.form.result_dims) // prod(
            self._sizes(pane)
        )
        apart = max(len(trips) - 1, 0)
        while apart and vectors * prod(trips[apart - 1 :]) <= MOST_AT_ONCE:
            apart -= 1
        return apart

    def merge_slices(self) -> None:
        """Sums of all vectors in one tensor, of which loops over taps carry the parts."""
        self.writer.merge_slices(["%func"])

    def vectorize(self) -> None:
        """Vectors, then taps one after the other, with sums that each hands to the next."""
        super().vectorize()
        w = self.writer
        w.line(f"transform.loop.unroll_full {w.match_loops('taps', 'taps')} : {ANY}")
        w.apply_patterns("%func", "canonicalization")
        w.line(f"transform.apply_cse to %func : {ANY}")


def fuse_spread(w: Writer, form: Form, product: str, loop: str) -> tuple[str, str]:
    """Spread the pixels that a product reads where it is computed; the op and the loop."""
    if form.group_extents["f"] > 1:
        w.apply_patterns(loop, "tensor.bubble_up_extract_slice")
        w.merge_slices([loop])
        lanes = w.name("lanes")
        w.line(
            f"{lanes} = transform.get_producer_of_operand {product}[{form.image_operand}] "
            f": ({ANY}) -> {ANY}"
        )
        return w.fuse(w.sliced(lanes, 0), loop, "pixels")
    return w.fuse(w.sliced(product, form.image_operand), loop, "pixels")


def foldable(form: Form, dim: str, part: Part, size: int) -> list[Part]:
    """A part's blocks one by one where upstream cannot fold a slice of a loop's block.

    `bubble_up_extract_slice` takes a slice of merged groups at an unknown place where their number
    divides that of all groups, and any slice at a known one.
    """
    if part.extent <= size or not _is_spread(form, dim) or _divides_groups(form, size):
        return [part]
    return [replace(part, extent=size)] * (part.extent // size)


def columns_of_blocks(form: Form, dim: str, size: int) -> int:
    """The size of a block; less where blocks that `foldable` writes out would be too many."""
    if not _is_spread(form, dim) or _divides_groups(form, size):
        return size
    channels, extent = form.group_extents["f"], form.nest.dim("co").extent
    if extent // size <= MOST_BLOCKS:
        return size
    fewer = range(size - channels, lanes_along(form, form.nest.col) - 1, -channels)
    return next((cols for cols in fewer if _divides_groups(form, cols)), size)


def _is_spread(form: Form, dim: str) -> bool:
    return form.spreads_channels and dim == form.nest.col


def _divides_groups(form: Form, size: int) -> bool:
    channels = form.group_extents["f"]
    groups = form.nest.dim("co").extent // channels
    return channels == 1 or groups % (size // channels) == 0
