"""The packs of a driver, and the prefetch of the block that is packed next."""

from kernels.native.driver.scope import Scope

# Counters share one i64: micro-kernel calls in the low bits, packs above them.
PACK_A_SHIFT, PACK_B_SHIFT = 32, 48
_PACKED = {"A": f"{1 << PACK_A_SHIFT}", "B": f"{1 << PACK_B_SHIFT}"}

_PREPARE = """

@njit("void(int64)", nogil=True)
def prepare(p):
"""


class PackPrinter(Scope):
    """Prints the pack of either operand where the nest has it."""

    def pack(self, operand: str) -> None:
        """Pack the current block of an operand; weights that are packed ahead cost nothing."""
        self.packed_from[operand] = dict(self.start)
        depth = f"({self.end[self.space.stream]} - {self.start[self.space.stream]})"
        if operand == "B" and self.is_ahead:
            for dim in (*self.lead("B"), self.space.col):
                self.ensure(f"b_{dim}")
            return
        if operand == "B" and self.space.patches:
            self.pack_patches(depth)
        elif operand == "B":
            if not self.fills:
                self.pack_b(depth)
            if self.schedule.prefetches:
                self.packed_end = self.end[self.space.col]
                self.find_next_block()
        elif self.is_conv:
            self.pack_image(depth)
        else:
            self.pack_rows(depth)
        self.count(_PACKED[operand])

    def pack_b(self, depth: str, to: str = "b_panels") -> None:
        """B's present block to panels from `to` on."""
        col = self.space.col
        cols = f"{self.end[col]} - {self.start[col]}"
        step = self.ensure(f"b_{col}")
        row = step if self.b_transposed else "b_stream"
        self.put(
            f"pack_b(pack_b_panel, {to}, {self.b_in_place()}, {cols},"
            f" register_cols, taps, b_tap_source, {depth}, {row}, {step}, size,"
            " word_depth, word_size, sums_size)"
        )

    def b_in_place(self) -> str:
        """Where the first row and column of B's present block lie."""
        source = self.offset("b", (*self.lead("B"), self.space.col), {})
        return f"b + ({self.start[self.space.stream]} * b_stream + {source}) * size"

    def fill_panel(self) -> None:
        """The first tile of rows packs the panel that it reads; a cut one has it packed before."""
        block = self.packed_from["B"]
        firsts = [
            f"{self.start[dim]} == {block[dim]}"
            for dim in self.space.row_dims
            if self.start[dim] != block[dim]
        ]
        self.put(f"if {' and '.join(firsts)}:")
        self.indent += 1
        self.put("if kernel == full:")
        self.put("    kernel, beside = filling, b_tile")
        self.put(f"    b_tile = {self.b_in_place()}")
        self.put("    b_tap = b_tap_source * depth_factor")
        self.put("else:")
        self.indent += 1
        self.pack_b("depth", to="b_tile")
        self.indent -= 2

    def find_next_block(self) -> None:
        """Where B's next block begins, by the two innermost loops that move it; else here."""
        *_, inner = self.moves_b
        outer = next((loop for loop in self.moves_b[:-1] if loop.dim != inner.dim), None)
        ahead = dict(self.start)
        for at in (inner, outer):
            if at is not None:
                self.put(f"next_{at.dim} = {at.start}")
                ahead[at.dim] = f"next_{at.dim}"
        self.put(f"if {inner.start} + {inner.step} < {inner.end}:")
        self.put(f"    next_{inner.dim} += {inner.step}")
        if outer is not None:
            self.put(f"elif {outer.start} + {outer.step} < {outer.end}:")
            self.put(f"    next_{outer.dim} += {outer.step}")
            self.put(f"    next_{inner.dim} = {inner.first}")
        col, stream = self.space.col, self.space.stream
        lead = self.offset("b", self.lead("B"), {})
        self.put(
            f"next_block = b + ({ahead[stream]} * b_stream"
            f" + {ahead[col]} * {self.ensure(f'b_{col}')} + {lead}) * size"
        )
        self.put("fetched = 0")

    def fetch_ahead(self) -> None:
        """The rows of B's next block that one call of the micro-kernel prefetches."""
        streamed = any(at.dim == self.space.stream for at in self.moves_b)
        col = self.space.col
        self.put(f"block_rows = depth{'' if streamed else ' * taps'}")
        self.put("panel = fetched // block_rows * register_cols")
        self.put(f"is_left = panel < {self.packed_end} - {self.packed_from['B'][col]}")
        self.put(
            "ahead = next_block"
            f" + is_left * (fetched % block_rows * b_stream + panel * b_{col}) * size"
        )
        self.put("fetched += tap_rows * tap_cols * (words * depth_factor // unroll) * word_depth")

    def pack_patches(self, depth: str) -> None:
        """Patches of one image to panels of B."""
        col, stream = self.space.col, self.space.stream
        source = self.offset("b", self.lead("B"), {})
        self.put(
            "pack_patches(copy_patches, pack_b_panel, b_panels, b_panels + raw_at,"
            f" b + ({source}) * size, {self.start[col]}, {self.end[col]} - {self.start[col]},"
            f" register_cols, {self.start[stream]}, {depth}, out_width, height, width,"
            " filter_rows, filter_cols, conv_stride, dilation, pad, size, word_depth,"
            " word_size, sums_size)"
        )

    def pack_rows(self, depth: str) -> None:
        """A's block to rows, or to columns where A is transposed."""
        row, stream = self.space.row, self.space.stream
        source = self.offset("a", (*self.lead("A"), row), {})
        at = f"a + ({self.start[stream]} * a_stream + {source}) * size"
        rows = f"{self.end[row]} - {self.start[row]}"
        if not self.a_transposed:
            self.put(
                f"call_address(copy_rows, a_panels, packed_row, {at}, a_row_source,"
                f" {rows}, {depth})"
            )
        elif self.joins:
            self.put(
                f"pack_transposed_a(pack_a_panel, lanes, a_panels, packed_row // word_depth, {at},"
                f" a_stream, {rows}, {depth}, size, word_size)"
            )
        else:
            self.put(
                f"call_address(copy_rows, a_panels, packed_row, {at}, a_stream, {depth}, {rows})"
            )

    def pack_image(self, depth: str) -> None:
        """The image's block with halo and zero padding."""
        rows = f"({self.end['oh']} - {self.start['oh']} - 1) * conv_stride + row_reach"
        source = self.offset("a", (*self.lead("A"), "n"), {})
        self.put(
            f"pack_image(copy_rows, a_panels, a + ({source} + {self.start['ci']}) * size,"
            f" {self.start['oh']} * conv_stride - pad, {self.start['ow']} * conv_stride - pad,"
            f" {rows}, packed_cols, height, width, channels, {depth},"
            " packed_row, size, packed_size, packed_zero)"
        )

    def print_prepare(self) -> str:
        """A second function that packs all of B, chunk by chunk, before the driver runs.

        Panels of one chunk lie together, whatever the blocks of the nest, so an address
        in them depends on the column and on the chunk alone.
        """
        col, stream = self.space.col, self.space.stream
        lead = self.space.lead[0] if self.space.lead else ""  # the only one of a constant B
        step = f"{stream}_step0" if f"{stream}_step0" in self.parameters else f"{stream}_extent"
        batches, along = (f"{lead}_extent", f"b_{lead}") if lead else ("1", "0")
        row = f"b_{col}" if self.b_transposed else "b_stream"
        used = [n for n in self.parameters if n in (
            "b", "b_panels", "pack_b_panel", "b_stream", f"b_{col}", "size", "word_depth",
            "word_size", "sums_size", "taps", "b_tap_source", "register_cols", "chunk_bytes",
            "batch_bytes", f"{col}_extent", f"{stream}_extent", step, batches, along,
        )]  # fmt: skip
        reads = "".join(f"    {name} = word(p, {self.parameters.index(name)})\n" for name in used)
        return (
            f"{_PREPARE}{reads}"
            f"    for i in range({batches}):\n"
            f"        for start in range(0, {stream}_extent, {step}):\n"
            f"            depth = min({step}, {stream}_extent - start)\n"
            f"            to = b_panels + i * batch_bytes + start // {step} * chunk_bytes\n"
            f"            source = b + (i * {along} + start * b_stream) * size\n"
            f"            pack_b(pack_b_panel, to, source, {col}_extent, register_cols, taps,\n"
            f"                   b_tap_source, depth, {row}, b_{col}, size, word_depth,\n"
            "                   word_size, sums_size)\n"
        )
