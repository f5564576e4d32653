"""The packs of a driver, where its nest has them, or in a function beside it that runs ahead."""

from tilewise.kernels.native.macrokernel.parameters import extent, step, stride
from tilewise.kernels.native.macrokernel.prefetch_printer import PrefetchPrinter
from tilewise.kernels.native.macrokernel.scope import Scope
from tilewise.kernels.native.strides import is_transposed
from tilewise.kernels.nest import Fetched, Role

# Counters share one i64: micro-kernel calls in the low bits, packs above them.
PACK_A_SHIFT, PACK_B_SHIFT = 32, 48
PACKED = {"A": f"{1 << PACK_A_SHIFT}", "B": f"{1 << PACK_B_SHIFT}"}


class PackPrinter:
    """Prints the pack of either operand."""

    def __init__(self, scope: Scope, prefetch: PrefetchPrinter) -> None:
        self.scope, self.nest, self.prefetch = scope, scope.nest, prefetch

    def pack(self, operand: str) -> None:
        """Pack the current block of an operand; weights that are packed ahead cost nothing."""
        scope, nest = self.scope, self.nest
        scope.packed_from[operand] = dict(scope.start)
        depth = f"({scope.length(nest.k)})"
        if operand == "A":
            self._pack_a(depth)
        elif scope.is_ahead:
            for dim in (*self.scope.lead("B"), nest.col):
                scope.ensure(stride("b", dim))
            return
        else:
            self._pack_b_as_needed(depth)
        scope.count(PACKED[operand])

    def _pack_b_as_needed(self, depth: str) -> None:
        if self.nest.operand("B").is_gathered:
            self.pack_patches(depth)
            return
        if not self.scope.fills:
            self.pack_b(depth)
        if self.scope.fetches(Fetched.NEXT_BLOCK):
            self.prefetch.find_next_block()

    def _pack_a(self, depth: str) -> None:
        if self.nest.image == "A":
            self.pack_image(depth)
        else:
            self.pack_rows(depth)

    def pack_b(self, depth: str, to: str = "b_panels") -> None:
        """B's present block to panels from `to` on."""
        scope, col = self.scope, self.nest.col
        along = scope.ensure(stride("b", col))
        row = along if is_transposed(self.nest, "B") else "b_stream"
        scope.put(
            f"pack_b(pack_b_panel, {to}, {scope.b_in_place()}, {scope.length(col)},"
            f" register_cols, taps, b_tap_source, {depth}, {row}, {along}, size,"
            " word_depth, word_size, sums_size)"
        )

    def fill_panel(self) -> None:
        """The first tile of rows packs the panel that it reads; a cut one has it packed before."""
        scope = self.scope
        block = scope.packed_from["B"]
        firsts = [
            f"{scope.start[dim]} == {block[dim]}"
            for dim in self.nest.rows
            if scope.start[dim] != block[dim]
        ]
        scope.put(f"if {' and '.join(firsts)}:")
        scope.indent += 1
        scope.put("if kernel == full:")
        scope.put("    kernel, beside = filling, b_tile")
        scope.put(f"    b_tile = {scope.b_in_place()}")
        scope.put("    b_tap = b_tap_source * depth_factor")
        scope.put("else:")
        scope.indent += 1
        self.pack_b("depth", to="b_tile")
        scope.indent -= 2

    def pack_patches(self, depth: str) -> None:
        """Patches of one image to panels of B."""
        scope, nest = self.scope, self.nest
        source = scope.offset("b", self.scope.lead("B"))
        scope.put(
            "pack_patches(copy_patches, pack_b_panel, b_panels, b_panels + raw_at,"
            f" b + ({source}) * size, {scope.start[nest.col]}, {scope.length(nest.col)},"
            f" register_cols, {scope.start[nest.k]}, {depth}, out_width, height, width,"
            " filter_rows, filter_cols, conv_stride, dilation, pad, size, word_depth,"
            " word_size, sums_size)"
        )

    def pack_rows(self, depth: str) -> None:
        """A's block to rows, or to columns where A is transposed."""
        scope, nest = self.scope, self.nest
        source = scope.offset("a", (*self.scope.lead("A"), nest.row))
        at = f"a + ({scope.start[nest.k]} * a_stream + {source}) * size"
        rows = scope.length(nest.row)
        if not is_transposed(nest, "A"):
            scope.put(
                f"call_address(copy_rows, a_panels, packed_row, {at}, a_row_source,"
                f" {rows}, {depth})"
            )
        elif scope.joins:
            scope.put(
                f"pack_transposed_a(pack_a_panel, lanes, a_panels, packed_row // word_depth, {at},"
                f" a_stream, {rows}, {depth}, size, packed_size * word_depth)"
            )
        else:
            scope.put(
                f"call_address(copy_rows, a_panels, packed_row, {at}, a_stream, {depth}, {rows})"
            )

    def pack_image(self, depth: str) -> None:
        """The image's block with halo and zero padding."""
        scope = self.scope
        rows = f"({scope.length('oh')} - 1) * conv_stride + row_reach"
        source, first = scope.offset("a", (*self.scope.lead("A"), "n")), scope.start["ci"]
        scope.put(
            f"pack_image(copy_rows, a_panels, a + ({source} + {first}) * size,"
            f" {scope.start['oh']} * conv_stride - pad, {scope.start['ow']} * conv_stride - pad,"
            f" {rows}, packed_cols, height, width, channels, {depth},"
            " packed_row, size, packed_size, packed_zero)"
        )


def print_prepare(scope: Scope) -> str:
    """The body of a function that packs all of B, chunk by chunk, before the driver runs.

    Panels of one chunk lie together, whatever the blocks of the nest, so an address
    in them depends on the column and on the chunk alone.
    """
    nest = scope.nest
    cols, depth, along = extent(nest.col), extent(nest.k), stride("b", nest.col)
    lead = next(iter(nest.named(Role.LEAD)), "")  # the only one of a constant B
    chunk = step(nest.k, 0) if step(nest.k, 0) in scope.parameters else depth
    batches, between = (extent(lead), stride("b", lead)) if lead else ("1", "0")
    row = along if is_transposed(nest, "B") else "b_stream"
    return (
        f"    for i in range({batches}):\n"
        f"        for start in range(0, {depth}, {chunk}):\n"
        f"            depth = min({chunk}, {depth} - start)\n"
        f"            to = b_panels + i * batch_bytes + start // {chunk} * chunk_bytes\n"
        f"            source = b + (i * {between} + start * b_stream) * size\n"
        f"            pack_b(pack_b_panel, to, source, {cols}, register_cols, taps,\n"
        f"                   b_tap_source, depth, {row}, {along}, size, word_depth,\n"
        "                   word_size, sums_size)\n"
    )
