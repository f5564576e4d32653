"""Register tiles of windows, taken apart: every tap of every vector becomes an op.

An op multiplies one vector of the image with one of the filter. All loops of a tile are unrolled,
so sums are values that no loop carries, and LLVM loads what several ops read once.


Register tiles of windows, tap by tap: all vectors of a tap come before the next tap.

Long sums want it. Of one vector after the other, each addition waits for the last one, and what
other vectors read is held meanwhile. Where channels are spread over lanes, a tile spreads each
pixel once. Elsewhere the taps of a large tile stay loops (docs/experiments/0052).

"""

from dataclasses import replace
from math import gcd, prod

from tilewise.kernels.mlir.cpu.borders import Pane, Part
from tilewise.kernels.mlir.payload.form import Form
from tilewise.kernels.mlir.transform.sequences import (
    contraction_matcher,
    elementwise_matcher,
    named_sequence,
)
from tilewise.kernels.mlir.transform.writer import ANY, Writer


class WindowTiles:
    """Writes what becomes of the register tiles of some panes."""

    def __init__(self, form: Form, writer: Writer, panes: list[Pane]) -> None:
        self.form = form
        self.writer = writer
        self.panes = panes

    def take_apart(self) -> None:
        """Leave single taps of single vectors; those that lie in the padding read its zeros."""
        w, form = self.writer, self.form
        vectors = [self._vectors(pane) for pane in self.panes]
        w.merge_slices([loops[0] for _, _, loops in vectors])
        tiled = [self._taps(product, loops) for _, product, loops in vectors]
        beside = [
            loops[0]
            for pane, (_, loops) in zip(self.panes, tiled, strict=True)
            if pane.starts or form.pads_taps
        ]
        if beside:
            w.merge_slices(beside)
        for pane, vector, taps in zip(self.panes, vectors, tiled, strict=True):
            (result, _, loops), (op, inner) = vector, taps
            if pane.starts:
                w.fuse(w.sliced(op, form.image_operand), inner[-1], "seen")
            if form.pads_taps:
                self._fuse_tap(op, inner[-1])
            if not form.has_epilogue:
                w.generalize(result, "stored")
            for loop in reversed([*loops, *inner]):
                w.line(f"transform.loop.unroll_full {loop} : {ANY}")
        w.include("cleanup")

    def cut_sizes(self, pane: Pane) -> list[int]:
        """What the result's dims are cut into to leave single vectors: one dim at the least."""
        sizes = [self._vector(pane, dim) for dim in self.form.result_dims]
        if not any(sizes):
            sizes[0] = 1
        return sizes

    def _vectors(self, pane: Pane) -> tuple[str, str, list[str]]:
        """The result and the product of single vectors, and their loops: one at the least."""
        result, loops = self.writer.tile_for(pane.result, self.cut_sizes(pane))
        product, _ = self.writer.fuse(pane.product, loops[-1], "vector")
        return result, product, loops

    def _taps(self, product: str, loops: list[str]) -> tuple[str, list[str]]:
        """The op of a single tap, and the loops over them; each vector with zeros of its own."""
        w = self.writer
        zeros, _ = w.fuse(w.sliced(product, 2), loops[-1], "zeros")
        w.generalize(zeros, "start")  # a named op would keep its dims of extent 1
        op = w.generalize(product, "window")
        return self.single(op, self.reductions)

    @property
    def reductions(self) -> dict[str, int]:
        """The extents of the reduction dims, taps first."""
        nest = self.form.nest
        return {**self.form.tap_extents, nest.k: nest.dim(nest.k).extent}

    def single(self, op: str, extents: dict[str, int]) -> tuple[str, list[str]]:
        """The op tiled to single steps along some dims, and the loops."""
        marks = [int(extents.get(dim, 1) > 1) for dim in self.form.dims]
        return self.writer.tile_for(op, marks) if any(marks) else (op, [])

    def _fuse_tap(self, op: str, loop: str) -> None:
        """Let an op see whether its tap is one of the filter, or a zero behind its line."""
        w = self.writer
        w.apply_patterns(loop, "tensor.bubble_up_extract_slice")
        w.merge_slices([loop])
        seen = w.name("seen")
        operand = 1 - self.form.image_operand
        w.line(f"{seen} = transform.get_producer_of_operand {op}[{operand}] : ({ANY}) -> {ANY}")
        w.fuse(w.sliced(seen, 0), loop, "tap")

    def vectorize(self) -> None:
        """Vectors for all that is left of the register tiles, and for lines that are copied."""
        w = self.writer
        if self._skips_padding:
            self._skip_padding()
        w.include("drop_unit_dims")
        self.merge_slices()
        for rank in self._ranks():
            w.line(f"transform.structured.vectorize {w.collect(f'of_rank_{rank}')} : {ANY}")
        for op in ("linalg.copy", *(["linalg.transpose"] if self.form.splits_lines else [])):
            w.line(f"transform.structured.vectorize {w.match(op, 'copies')} : {ANY}")
        w.apply_patterns("%func", "tensor.fold_tensor_subset_ops_into_vector_transfers")
        w.apply_patterns("%func", "tensor.fold_tensor_empty")
        w.include("hoist_accumulators")

    def merge_slices(self) -> None:
        """What vectors' ops want of slices once unit dims are gone: nothing."""

    @property
    def _skips_padding(self) -> bool:
        return self.form.pads_taps or any(pane.starts for pane in self.panes)

    @property
    def _skip(self) -> str:
        """The sequence that takes the zeros out: lines that are split are copied with theirs."""
        return "skip_taps" if self.form.pads_taps else "skip_products"

    def _skip_padding(self) -> None:
        """Leave out products of taps that find nothing but padding."""
        w = self.writer
        w.line("// taps that lie in the padding")
        beside = w.match("tensor.generate", "beside")
        w.line(f"transform.foreach {beside} : {ANY} {{")
        w.line(f"^bb0(%op: {ANY}):")
        w.line(f"  transform.include @{self._skip} failures(propagate) (%op) : ({ANY}) -> ()")
        w.line("}")
        w.line(
            f"{w.name('nothing')} = transform.structured.rewrite_in_destination_passing_style "
            f"{beside} : ({ANY}) -> {ANY}"
        )

    def matchers(self) -> list[str]:
        """What finds the vectors' ops, and skips those that are not there."""
        return [
            contraction_matcher("contraction", None, self.form.body),
            *(elementwise_matcher(f"of_rank_{rank}", rank) for rank in self._ranks()),
            *([named_sequence(self._skip)] if self._skips_padding else []),
        ]

    def _ranks(self) -> list[int]:
        """How many dims the vectors' ops have, in one pane or another."""
        taps = {0} if self.form.pads_taps else set[int]()
        if self.form.spreads_channels:
            return [0, 1, 2, 3]
        return sorted(taps | {sum(size > 1 for size in self._sizes(pane)) for pane in self.panes})

    def _sizes(self, pane: Pane) -> list[int]:
        """The extents of a vector's op."""
        dims = self.form.result_dims
        return [self._vector(pane, dim) or pane.extents[dim] for dim in dims]

    def _vector(self, pane: Pane, dim: str) -> int:
        """What a dim is cut into to leave single vectors; 0 where it stays whole."""
        extent = pane.extents[dim]
        if dim == self.form.nest.col:
            lanes = lanes_along(self.form, dim)
            return 0 if extent <= lanes else gcd(extent, lanes)
        return int(extent > 1)

    @property
    def products(self) -> int:
        """How many vectors are multiplied by the code of all panes."""
        vectors = 0
        for pane in self.panes:
            extents = [pane.extents[dim] for dim in self.form.result_dims]
            vectors += prod(extents) // prod(self._sizes(pane))
        return vectors * prod(self.reductions.values())


def lanes_along(form: Form, dim: str) -> int:
    """The extent of a dim that a vector has at the most."""
    if dim != form.nest.col:
        return 1
    lanes = form.register_lanes
    whole = lanes % form.group_extents["f"] if form.spreads_channels else 0
    return lanes - whole


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
