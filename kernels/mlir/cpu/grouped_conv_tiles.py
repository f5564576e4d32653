"""Register tiles of convolutions with few channels in a group, split into single vectors."""

from math import gcd, prod

from tilewise.kernels.mlir.cpu.borders import Region
from tilewise.kernels.mlir.payload.form import LinalgForm
from tilewise.kernels.mlir.transform.sequences import (
    contraction_matcher,
    elementwise_matcher,
    named_sequence,
)
from tilewise.kernels.mlir.transform.writer import ANY, SequenceWriter

MOST_AT_ONCE = 128
"""Vectors that code without a loop multiplies. Where a tile's taps are more, LLVM takes the weights
of all of them out of the loops over tiles, and reads each back from the stack as a whole vector."""


class GroupedConvTiles:
    """Writes register tiles with an op for every tap of every vector.

    An op multiplies a vector of the image with one of the filter. All loops of a tile are unrolled,
    so that no loop carries sums, and LLVM loads shared operands once.
    """

    def __init__(self, form: LinalgForm, writer: SequenceWriter, regions: list[Region]) -> None:
        self.form, self.writer, self.regions = form, writer, regions

    def take_apart(self) -> None:
        """Leave single taps of single vectors; those in the padding read its zeros."""
        w, form = self.writer, self.form
        vectors = [self._vectors(region) for region in self.regions]
        w.merge_slices([loops[0] for _, _, loops in vectors])
        tiled = [self._taps(product, loops) for _, product, loops in vectors]
        at_border = [
            loops[0]
            for region, (_, loops) in zip(self.regions, tiled, strict=True)
            if region.starts or form.pads_taps
        ]
        if at_border:
            w.merge_slices(at_border)
        for region, vector, taps in zip(self.regions, vectors, tiled, strict=True):
            (result, _, loops), (op, inner) = vector, taps
            if region.starts:
                w.fuse(w.sliced(op, form.image_operand), inner[-1], "seen")
            if form.pads_taps:
                self._fuse_tap(op, inner[-1])
            if not form.has_epilogue:
                w.generalize(result, "stored")
            w.unroll_full([*loops, *inner])
        w.include("cleanup")

    def cut_sizes(self, region: Region) -> list[int]:
        """Return the sizes that split the result's dims into single vectors, at least one."""
        sizes = [self._vector(region, dim) for dim in self.form.result_dims]
        if not any(sizes):
            sizes[0] = 1
        return sizes

    def _vectors(self, region: Region) -> tuple[str, str, list[str]]:
        """Return result and product of single vectors, and their loops."""
        result, loops = self.writer.tile_for(region.result, self.cut_sizes(region))
        product, _ = self.writer.fuse(region.product, loops[-1], "vector")
        return result, product, loops

    def _taps(self, product: str, loops: list[str]) -> tuple[str, list[str]]:
        """Return the op of a single tap, and the loops over taps; each vector has its own zeros."""
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
        """Tile an op to single steps along some dims; return it and the loops."""
        marks = [int(extents.get(dim, 1) > 1) for dim in self.form.dims]
        return self.writer.tile_for(op, marks) if any(marks) else (op, [])

    def _fuse_tap(self, op: str, loop: str) -> None:
        """Expose to an op whether its tap is one of the filter, or a zero after its line."""
        w = self.writer
        w.apply_patterns(loop, "tensor.bubble_up_extract_slice")
        w.merge_slices([loop])
        seen = w.producer(op, 1 - self.form.image_operand, "seen")
        w.fuse(w.sliced(seen, 0), loop, "tap")

    def vectorize(self) -> None:
        """Write vectors for the register tiles, and for lines that are copied."""
        w = self.writer
        if self._skips_padding:
            self._skip_padding()
        w.include("drop_unit_dims")
        self.merge_slices()
        for rank in self._ranks():
            w.vectorize(w.collect(f"of_rank_{rank}"))
        for op in ("linalg.copy", *(["linalg.transpose"] if self.form.splits_lines else [])):
            w.vectorize(w.match(op, "copies"))
        w.apply_patterns("%func", "tensor.fold_tensor_subset_ops_into_vector_transfers")
        w.apply_patterns("%func", "tensor.fold_tensor_empty")
        w.include("hoist_accumulators")

    def merge_slices(self) -> None:
        """Merge slices that vectors read after unit dims are dropped: none here."""

    @property
    def _skips_padding(self) -> bool:
        return self.form.pads_taps or any(region.starts for region in self.regions)

    @property
    def _skip(self) -> str:
        """The sequence that removes zeros; split lines are copied with theirs."""
        return "skip_taps" if self.form.pads_taps else "skip_products"

    def _skip_padding(self) -> None:
        """Leave out products of taps that find nothing but padding."""
        w = self.writer
        w.line("// taps that lie in the padding")
        zeros = w.match("tensor.generate", "zeros")
        w.foreach(
            zeros, [f"transform.include @{self._skip} failures(propagate) (%op) : ({ANY}) -> ()"]
        )
        w.in_place(zeros, "nothing")

    def matchers(self) -> list[str]:
        """Return the sequences that match the ops of vectors, and skip those of padding."""
        return [
            contraction_matcher("contraction", None, self.form.body),
            *(elementwise_matcher(f"of_rank_{rank}", rank) for rank in self._ranks()),
            *([named_sequence(self._skip)] if self._skips_padding else []),
        ]

    def _ranks(self) -> list[int]:
        """Return the numbers of dims that the ops of vectors have."""
        if self.form.spreads_channels:
            return [0, 1, 2, 3]
        ranks = {sum(size > 1 for size in self._sizes(region)) for region in self.regions}
        return sorted(ranks | {0}) if self.form.pads_taps else sorted(ranks)

    def _sizes(self, region: Region) -> list[int]:
        """Return the extents of a vector's op."""
        dims = self.form.result_dims
        return [self._vector(region, dim) or region.extents[dim] for dim in dims]

    def _vector(self, region: Region, dim: str) -> int:
        """Return the size that splits a dim into single vectors; 0 if it stays whole."""
        extent = region.extents[dim]
        if dim == self.form.nest.col:
            lanes = lanes_along(self.form, dim)
            return 0 if extent <= lanes else gcd(extent, lanes)
        return int(extent > 1)

    def count(self, region: Region) -> int:
        """Return the number of vectors in a region of the result."""
        extents = [region.extents[dim] for dim in self.form.result_dims]
        return prod(extents) // prod(self._sizes(region))

    @property
    def products(self) -> int:
        """The number of vector multiplications in the code of all regions."""
        return sum(map(self.count, self.regions)) * prod(self.reductions.values())


class TapTiles(GroupedConvTiles):
    """Writes register tiles of several inputs: all vectors of a tap come before the next tap.

    That suits long sums: one vector after the other, each addition would wait for the previous one
    while registers hold what other vectors read. If channels are spread over lanes, a tile spreads
    each pixel once. Otherwise the taps of a large tile stay loops (docs/experiments/0052).
    """

    @classmethod
    def serve(cls, form: LinalgForm, regions: list[Region]) -> bool:
        """Return whether sums are long, and no tap is known to be in the padding."""
        reads_padding = form.pads_taps or any(region.starts for region in regions)
        is_long = form.spreads_channels or form.nest.dim(form.nest.k).extent > 1
        return is_long and not reads_padding

    def take_apart(self) -> None:
        """Leave single taps of single vectors, all vectors of a tap before the next tap.

        Loops over taps carry the sums; some are unrolled as well. Regions are processed from last
        to first, since pixels spread for one would otherwise be taken for those of the following
        ones.
        """
        for region in reversed(self.regions):
            self._tap_by_tap(region)
        self.writer.include("cleanup")

    def _tap_by_tap(self, region: Region) -> None:
        w, form = self.writer, self.form
        result, box = w.boxed(region.result)
        product, box = w.fuse(region.product, box, "product")
        w.merge_slices([box])
        zeros, box = w.fuse(w.sliced(product, 2), box, "zeros")
        pixels = fuse_spread(w, form, product, box)[0] if form.spreads_channels else ""
        extents = self.reductions
        op, loops = self.single(w.generalize(product, "window"), extents)
        apart = self._loops_apart(region, [n for d in form.dims if (n := extents.get(d, 1)) > 1])
        for depth, loop in enumerate(loops):
            w.annotate(loop, "accumulates", *(["taps"] if depth >= apart else []))
        sizes = self.cut_sizes(region)
        if not form.has_epilogue:
            w.generalize(result, "stored")  # a copy, so that sums are written to C itself
        cuts = [(op, sizes), (zeros, sizes)]
        cuts += [(result, sizes)] if form.has_epilogue else []
        cuts += [(pixels, [1, 1, 1])] if form.spreads_channels else []
        for handle, cut in cuts:
            tiled, loops = w.tile_for(handle, cut)
            if handle == zeros:
                w.generalize(tiled, "start")
            w.unroll_full(loops)

    def _loops_apart(self, region: Region, trips: list[int]) -> int:
        """Return how many loops over taps stay loops, outermost first.

        LLVM keeps spread pixels in registers only in code without loops.
        """
        if self.form.spreads_channels:
            return 0
        vectors, apart = self.count(region), max(len(trips) - 1, 0)
        while apart and vectors * prod(trips[apart - 1 :]) <= MOST_AT_ONCE:
            apart -= 1
        return apart

    def merge_slices(self) -> None:
        """Put sums of all vectors in one tensor, whose parts the loops over taps carry."""
        self.writer.merge_slices(["%func"])

    def vectorize(self) -> None:
        """Write vectors, then the taps in order, each with the sums of the previous one."""
        super().vectorize()
        w = self.writer
        w.unroll_full([w.match_loops("taps", "taps")])
        w.apply_patterns("%func", "canonicalization")
        w.line(f"transform.apply_cse to %func : {ANY}")


def fuse_spread(w: SequenceWriter, form: LinalgForm, product: str, loop: str) -> list[str]:
    """Spread the pixels that a product reads where it is computed; return the op and the loop."""
    if form.group_extents["f"] > 1:
        w.apply_patterns(loop, "tensor.bubble_up_extract_slice")
        w.merge_slices([loop])
        lanes = w.producer(product, form.image_operand, "lanes")
        return w.fuse(w.sliced(lanes, 0), loop, "pixels")
    return w.fuse(w.sliced(product, form.image_operand), loop, "pixels")


def lanes_along(form: LinalgForm, dim: str) -> int:
    """Return the largest extent of a dim in a vector."""
    if dim != form.nest.col:
        return 1
    lanes = form.register_lanes
    whole = lanes % form.group_extents["f"] if form.spreads_channels else 0
    return lanes - whole


def divides_groups(form: LinalgForm, size: int) -> bool:
    """Return whether the number of groups in blocks of `size` channels divides all groups."""
    channels = form.group_extents["f"]
    groups = form.nest.dim("co").extent // channels
    return channels == 1 or groups % (size // channels) == 0
