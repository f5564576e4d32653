"""Register tiles of windows, taken apart: every tap of every vector becomes an op.

An op multiplies one vector of the image with one of the filter. All loops of a tile are unrolled,
so sums are values that no loop carries, and LLVM loads what several ops read once.
"""

from math import gcd, prod

from kernels.mlir.cpu.panes import Pane
from kernels.mlir.cpu.register_tile import REGISTER_BYTES
from kernels.mlir.payload.form import Form
from kernels.mlir.transform.matchers import contraction_matcher, elementwise_matcher
from kernels.mlir.transform.sequences import named_sequence
from kernels.mlir.transform.writer import ANY, Writer


class WindowTiles:
    """Writes what becomes of the register tiles of some panes."""

    def __init__(self, form: Form, writer: Writer, panes: list[Pane]) -> None:
        self.form = form
        self.writer = writer
        self.panes = panes

    def take_apart(self) -> None:
        """Leave single taps of single vectors; those that lie in the padding read its zeros."""
        if self.goes_by_taps:
            self._take_apart_by_taps()
            return
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

    @property
    def goes_by_taps(self) -> bool:
        """Whether all vectors of a tap come before the next tap.

        Long sums want it: of a few vectors at a time, each addition waits for the last one.
        """
        form = self.form
        beside = form.pads_taps or any(pane.starts for pane in self.panes)
        is_long = form.spreads_channels or form.space.extent(form.space.stream) > 1
        return is_long and not beside

    def _take_apart_by_taps(self) -> None:
        """Leave single taps of single vectors, all vectors of a tap before the next tap.

        Sums are values that loops over the taps
        carry, until those are unrolled as well.
        """
        w = self.writer
        for pane in self.panes:
            self._tap_by_tap(pane)
        w.include("cleanup")

    def _tap_by_tap(self, pane: Pane) -> None:
        w, form = self.writer, self.form
        result, box = w.boxed(pane.result)
        product, box = w.fuse(pane.product, box, "product")
        w.merge_slices([box])
        zeros, box = w.fuse(w.sliced(product, 2), box, "zeros")
        pixels = self.fuse_spread(product, box)[0] if form.spreads_channels else ""
        extents = {**form.tap_extents, form.space.stream: form.space.extent(form.space.stream)}
        op, loops = self._single(w.generalize(product, "window"), extents)
        for loop in loops:
            w.line(f'transform.annotate {loop} "accumulates" : {ANY}')
        sizes = self._cut_sizes(pane)
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

    def fuse_spread(self, product: str, loop: str) -> tuple[str, str]:
        """Spread the pixels that a product reads where it is computed; the op and the loop."""
        w, form = self.writer, self.form
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

    def _cut_sizes(self, pane: Pane) -> list[int]:
        """What the result's dims are cut into to leave single vectors: one dim at the least."""
        sizes = [self._vector(pane, dim) for dim in self.form.result_dims]
        if not any(sizes):
            sizes[0] = 1
        return sizes

    def _vectors(self, pane: Pane) -> tuple[str, str, list[str]]:
        """The result and the product of single vectors, and their loops: one at the least."""
        result, loops = self.writer.tile_for(pane.result, self._cut_sizes(pane))
        product, _ = self.writer.fuse(pane.product, loops[-1], "vector")
        return result, product, loops

    def _taps(self, product: str, loops: list[str]) -> tuple[str, list[str]]:
        """The op of a single tap, and the loops over them; each vector with zeros of its own."""
        w, form = self.writer, self.form
        zeros, _ = w.fuse(w.sliced(product, 2), loops[-1], "zeros")
        w.generalize(zeros, "start")  # a named op would keep its dims of extent 1
        op = w.generalize(product, "window")
        inputs = {form.space.stream: form.space.extent(form.space.stream)}
        return self._single(op, {**form.tap_extents, **inputs})

    def _single(self, op: str, extents: dict[str, int]) -> tuple[str, list[str]]:
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
        if self.goes_by_taps:
            w.merge_slices(["%func"])
        for rank in self._ranks():
            w.line(f"transform.structured.vectorize {w.collect(f'of_rank_{rank}')} : {ANY}")
        for op in ("linalg.copy", *(["linalg.transpose"] if self.form.splits_lines else [])):
            w.line(f"transform.structured.vectorize {w.match(op, 'copies')} : {ANY}")
        w.apply_patterns("%func", "tensor.fold_tensor_subset_ops_into_vector_transfers")
        w.apply_patterns("%func", "tensor.fold_tensor_empty")
        w.include("hoist_accumulators")
        if self.goes_by_taps:
            self._unroll_taps()

    def _unroll_taps(self) -> None:
        """Taps one after the other, with sums that each hands to the next."""
        w = self.writer
        w.line(f"transform.loop.unroll_full {w.match_loops('accumulates', 'taps')} : {ANY}")
        w.apply_patterns("%func", "canonicalization")
        w.line(f"transform.apply_cse to %func : {ANY}")

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
        if dim == self.form.space.col:
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
        taps = prod(self.form.tap_extents.values())
        return vectors * taps * self.form.space.extent(self.form.space.stream)


def lanes_along(form: Form, dim: str) -> int:
    """The extent of a dim that a vector has at the most."""
    if dim != form.space.col:
        return 1
    lanes = REGISTER_BYTES // form.accumulator_bytes
    whole = lanes % form.group_extents["f"] if form.spreads_channels else 0
    return lanes - whole
