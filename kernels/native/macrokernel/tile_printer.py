"""Prints a nest whose micro-kernel computes one register tile: packs, and a call for each tile."""

from tilewise.kernels.arithmetic import Arithmetic
from tilewise.kernels.instructions import Form
from tilewise.kernels.native.macrokernel.nest_printer import NestPrinter
from tilewise.kernels.native.macrokernel.parameters import extent, step, stride
from tilewise.kernels.native.macrokernel.prefetch_printer import prefetch_of
from tilewise.kernels.native.microkernels.abi import (
    CONFIGURE,
    RELEASE,
    WIDEN,
    Arguments,
    VolumeArguments,
)
from tilewise.kernels.native.microkernels.matrix_tiles_code import TILE
from tilewise.kernels.native.strides import VOLUME, is_transposed
from tilewise.kernels.nest import Layout, Nest, Role, Stage

_PANEL_BYTES = "(taps * words * register_cols * word_size + sums_size)"
_WORDS = "size, word_depth, word_size, sums_size"
_ROWS_AT_ONCE = 32
"""Rows of B packed to all panels before the next ones: memory delivers long rows fastest."""


class TilePrinter(NestPrinter):
    """Prints the packs, where a tile's operands are, what the call is to do, and the call."""

    def __init__(self, nest: Nest, how: Arithmetic) -> None:
        super().__init__(nest, how)
        self.has_tiles = how.form is Form.TILES
        self.has_slices = len(nest.named(Role.TAP)) == VOLUME
        self.rows_at_once = _ROWS_AT_ONCE
        if self.has_tiles:
            self.rows_at_once = max(_ROWS_AT_ONCE, TILE * how.depth)  # tiles are packed whole
            self.put(f"call_address({CONFIGURE})")
        self.prefetch = prefetch_of(self)
        self.prefetch.begin()

    def finish(self) -> None:
        """Print that the thread gives its tile registers back."""
        if self.has_tiles:
            self.indent = 2
            self.put(f"call_address({RELEASE})")

    # Packs -----------------------------------------------------------------------------------

    def stage(self, stage: Stage) -> None:
        """Print the pack of an operand's current block; nothing for weights packed ahead."""
        if stage.is_ahead:
            return
        depth = f"({self.length(self.nest.k)})"
        if stage.operand == "B":
            self._pack_b_block(depth)
        elif self.nest.image == "A":
            self._pack_image(depth)
        else:
            self._pack_rows(depth)
        self.count(stage.operand)

    def fetch(self) -> None:
        """Print the next block of a B that is read in place; one that is packed begins there."""
        if not self.nest.stage("B"):
            self.prefetch.begin_block()

    def prepare_text(self) -> str:
        """Return the body of a function that packs all of B before the nest runs, chunk by chunk.

        Panels of one chunk are neighbours, whatever the blocks of the nest: an address in them
        depends on the column and on the chunk alone.
        """
        nest = self.nest
        cols, depth, along = extent(nest.col), extent(nest.k), stride("b", nest.col)
        lead = next(iter(nest.named(Role.LEAD)), "")  # the only one of a constant B
        chunk = step(nest.k, 0) if nest.k_block else depth
        batches, between = (extent(lead), stride("b", lead)) if lead else ("1", "0")
        row, rows = self._rows_of_b("depth")
        return (
            f"    for i in range({batches}):\n"
            f"        for start in range(0, {depth}, {chunk}):\n"
            f"            depth = min({chunk}, {depth} - start)\n"
            f"            to = b_panels + i * batch_bytes + start // {chunk} * chunk_bytes\n"
            f"            source = b + (i * {between} + start * b_stream) * size\n"
            f"            pack_b(pack_b_panel, to, source, {cols}, register_cols, taps,\n"
            f"                   b_tap_source, depth, {rows}, {row}, {along}, {_WORDS},"
            f" {self.zero('B')})\n"
        )

    def _pack_b_block(self, depth: str) -> None:
        if self.nest.operand("B").is_gathered:
            self._pack_patches(depth)
            return
        if not self.fills:
            self._pack_b("b_panels", depth)
        self.prefetch.begin_block()

    def _pack_b(self, to: str, depth: str) -> None:
        """Print a pack of B's present block to panels from `to` on."""
        along = stride("b", self.nest.col)
        row, rows = self._rows_of_b(depth)
        self.put(
            f"pack_b(pack_b_panel, {to}, {self.b_in_place()}, {self.length(self.nest.col)},"
            f" register_cols, taps, b_tap_source, {depth}, {rows}, {row}, {along}, {_WORDS},"
            f" {self.zero('B')})"
        )

    def _rows_of_b(self, depth: str) -> tuple[str, str]:
        """Return the step between stored rows of B, and how many rows all panels take at once.

        A transposed B is stored along k, and so are panels along k: each takes all of its rows.
        """
        if is_transposed(self.nest, "B"):
            return stride("b", self.nest.col), depth
        stage = self.nest.stage("B")
        is_along_k = stage is not None and stage.layout is Layout.PANELS_ALONG_K
        return "b_stream", depth if is_along_k else str(self.rows_at_once)

    def _pack_patches(self, depth: str) -> None:
        """Print a pack of patches of one image to panels of B."""
        col, k = self.nest.col, self.nest.k
        self.put(
            "pack_patches(copy_patches, pack_b_panel, b_panels, b_panels + raw_at,"
            f" b + ({self.offset('b', self.lead('B'))}) * size, {self.start[col]},"
            f" {self.length(col)}, register_cols, {self.start[k]}, {depth}, out_height, out_width,"
            " slices, height, width, filter_slices, filter_rows, filter_cols, stride_slices,"
            " stride_down, stride_across, dilation_slices, dilation_down, dilation_across,"
            f" pad_front, pad_top, pad_left, {_WORDS}, {self.zero('B')})"
        )

    def _pack_rows(self, depth: str) -> None:
        """Print a pack of A's block to rows, or to columns where A is transposed."""
        source = self.offset("a", (*self.lead("A"), self.nest.row))
        at = f"a + ({self.start[self.nest.k]} * a_stream + {source}) * size"
        rows = self.length(self.nest.row)
        if is_transposed(self.nest, "A") and self.joins:
            self.put(
                f"pack_transposed_a(pack_a_panel, lanes, a_panels, packed_row // word_depth, {at},"
                f" a_stream, {rows}, {depth}, size, packed_size * word_depth, {self.zero('A')})"
            )
            return
        block = f"a_row_source, {rows}, {depth}"
        if is_transposed(self.nest, "A"):
            block = f"a_stream, {depth}, {rows}"
        self.put(f"call_address(copy_rows, a_panels, packed_row, {at}, {block}, {self.zero('A')})")

    def _pack_image(self, depth: str) -> None:
        """Print a pack of the image's block with halo and zero padding."""
        start, source = self.start, self.offset("a", (*self.lead("A"), "n"))
        zero = "packed_zero"
        if self.moves_zero:
            zero = f"(packed_zero + first_byte({self.zero('A')})) % 256"
        to, image, height = "a_panels", f"a + ({source} + {start['ci']}) * size", "height"
        if self.has_slices:  # one outside of the volume is packed as an image without lines
            self.put("for slice in range(slice_reach):")
            self.indent += 1
            self.put(f"z = {start['od']} * stride_slices - pad_front + slice")
            self.put("lines = height if 0 <= z and z < slices else 0")
            to += " + slice * packed_slice * packed_row * packed_size"
            image += " + z * height * width * channels * size"
            height = "lines"
        self.put(
            f"pack_image(copy_rows, {to}, {image},"
            f" {start['oh']} * stride_down - pad_top, {start['ow']} * stride_across - pad_left,"
            f" ({self.length('oh')} - 1) * stride_down + row_reach, packed_cols, {height}, width,"
            f" channels, {depth}, packed_row, size, packed_size, {zero}, {self.zero('A')})"
        )
        self.indent -= self.has_slices

    def ready_panel(self) -> None:
        """Print what makes the panel that a call reads, where that was not done before."""
        if self.fills:
            self._fill_panel()

    def _fill_panel(self) -> None:
        """Print that the first tile of rows packs the panel that it reads.

        The micro-kernel of whole tiles packs it in passing; a border tile has it packed before.
        """
        block = self.packed_from["B"]
        firsts = [
            f"{self.start[dim]} == {block[dim]}"
            for dim in self.nest.rows
            if self.start[dim] != block[dim]
        ]
        self.put(f"if {' and '.join(firsts)}:")
        self.indent += 1
        self.put("if kernel == full:")
        self.put("    kernel, extra = filling, b_tile")
        self.put(f"    b_tile = {self.b_in_place()}")
        self.put("    b_tap = b_tap_source * depth_factor")
        self.put("else:")
        self.indent += 1
        self._pack_b("b_tile", "depth")
        self.indent -= 2

    # Calls -----------------------------------------------------------------------------------

    def compute(self) -> None:
        """Print everything for one tile."""
        nest = self.nest
        self.put(f"rows = {self.length(nest.row)}")
        self.put(f"cols = {self.length(nest.col)}")
        self.put(f"depth = {self.length(nest.k)}")
        self.put("words = (depth + word_depth - 1) // word_depth")
        self.put(f"flags = flags_first if {self.start[nest.k]} == 0 else flags_later")
        self.put(f"if {self.end[nest.k]} == {extent(nest.k)}: flags |= flags_last")
        self.put(f"a_tile = {self._a_tile()}")
        self.put(f"b_tile = {self._b_tile()}")
        of_c = (*nest.named(Role.LEAD), *nest.rows, nest.col)
        self.put(f"c_tile = {self.sums(of_c)}")
        self.put("kernel = full if rows == register_rows and cols == register_cols else edge")
        self.put(f"b_tap, extra = {self._b_tap()}, {self._sums()}")
        self.ready_panel()
        self.prefetch.call(_PANEL_BYTES)
        self.put(f"call_address(kernel, {', '.join(vars(self._arguments()).values())})")
        self.finish_block(of_c, "c_tile", "rows", "cols", self._bias())
        self.count("micro_kernels")

    def _arguments(self) -> Arguments[str]:
        arguments = Arguments(
            a="a_tile",
            b="b_tile",
            c="c_tile",
            bias=f"bias + ({self._bias()}) * out_size",
            c_row=self.sums_row,
            a_tap_row="a_tap_row",
            a_tap_col="a_tap_col",
            b_tap="b_tap",
            tap_rows="tap_rows",
            tap_cols="tap_cols",
            depth="words * depth_factor",
            flags="flags",
            rows="rows",
            cols="cols",
            extra="extra",
            ahead=self.prefetch.ahead,
            ahead_step=self.prefetch.step,
            zero=self.zero("A"),
        )
        if not self.has_slices:
            return arguments
        return VolumeArguments(
            **vars(arguments), a_tap_slice="a_tap_slice", tap_slices="tap_slices"
        )

    def _bias(self) -> str:
        """Return how many elements of the bias precede that of the tile."""
        bias = self.nest.operand("bias")
        return self.offset("bias", tuple(d for d in self.nest.scheduled if d in bias.dims))

    def _a_tile(self) -> str:
        nest = self.nest
        if not nest.stage("A"):
            offset = self.offset("a", (*self.lead("A"), *nest.rows))
            return f"a + ({self.start[nest.k]} * a_stream + {offset}) * size"
        moving = tuple(d for d in nest.rows if not nest.dim(d).single)
        return f"a_panels + ({self.offset('ap', moving, self.packed_from['A'])}) * packed_size"

    def _b_tile(self) -> str:
        col = self.nest.col
        if not self.nest.stage("B"):
            return self.b_in_place()
        if self.is_ahead:
            return f"{self._chunk()} + {self.start[col]} // register_cols * {_PANEL_BYTES}"
        panel = f"({self.start[col]} - {self.packed_from['B'][col]}) // register_cols"
        return f"b_panels + {panel} * {_PANEL_BYTES}"

    def _chunk(self) -> str:
        """Return where the present chunk of panels that were packed ahead begins."""
        at, k = "b_panels", self.nest.k
        for lead in self.nest.named(Role.LEAD):
            at += f" + {self.start[lead]} * batch_bytes"
        if self.start[k] != "0":
            at += f" + {self.start[k]} // {step(k, 0)} * chunk_bytes"
        return at

    def _b_tap(self) -> str:
        b_tap = "words * register_cols" if self.nest.stage("B") else "b_tap_source"
        return f"{b_tap} * depth_factor" if self.nest.image == "A" else b_tap

    def _sums(self) -> str:
        """Return the column sums of a panel, which follow it; 0 where none are needed."""
        return "b_tile + taps * words * register_cols * word_size" if self.corrects else "0"


class WeightOnlyPrinter(TilePrinter):
    """Prints a nest whose B is quantised: one function packs codes, scales and zero points.

    Matrix tiles read codes that are widened in memory of a thread's own; as many panels at a time
    as a call reads, which is one.
    """

    def __init__(self, nest: Nest, how: Arithmetic) -> None:
        super().__init__(nest, how)
        if self.has_tiles:
            self.put("widened = 0")

    def ready_panel(self) -> None:
        """Print that a panel is widened before the first of the calls in a row that read it."""
        if self.has_tiles:
            self.put("if b_tile != widened:")
            self.put(f"    call_address({WIDEN}, a_panels + widened_at, b_tile, words)")
            self.put("    widened = b_tile")
            self.put("extra = b_tile + words * codes_size")
            self.put("b_tile = a_panels + widened_at")

    def prepare_text(self) -> str:
        """Return the body of a function that packs all of B before the nest runs."""
        nest = self.nest
        depth, cols = extent(nest.k), extent(nest.col)
        chunk = step(nest.k, 0) if nest.k_block else depth
        zeros = "zero_b" if "zero_b" in nest.problem.extras else "0"
        return (
            f"    for start in range(0, {depth}, {chunk}):\n"
            f"        to = b_panels + start // {chunk} * chunk_bytes\n"
            f"        call_address(pack_b_panel, to, b, scale_b, {zeros}, start,\n"
            f"                     min({chunk}, {depth} - start), {depth}, {cols})\n"
        )
