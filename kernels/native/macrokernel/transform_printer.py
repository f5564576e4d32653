"""Prints the nest of a schedule with the step `winograd` or `strassen`: transforms around products.

The transforms are where the nest has its stages and its store. The products of a block are in
memory between: C is transformed after the loops over points and tiles.
"""

from tilewise.kernels.arithmetic import Arithmetic
from tilewise.kernels.native.ir.vectors import LINE_BYTES
from tilewise.kernels.native.macrokernel.nest_printer import NestPrinter
from tilewise.kernels.native.macrokernel.parameters import extent, names_of, stride
from tilewise.kernels.native.macrokernel.prefetch_printer import prefetch_of
from tilewise.kernels.native.microkernels.abi import PAST_CACHES, Arguments
from tilewise.kernels.native.strides import is_strassen, is_transposed
from tilewise.kernels.nest import Loop, Nest, Stage
from tilewise.kernels.steps.algorithm import POINT, TILES


class TransformPrinter(NestPrinter):
    """Prints the transforms of a block of tiles, and the call for the products of one tile."""

    def __init__(self, nest: Nest, how: Arithmetic) -> None:
        super().__init__(nest, how)
        self.col, self.depth = nest.col, extent(nest.k)
        self.is_strassen = is_strassen(nest)
        self.prefetch = prefetch_of(self)
        self.prefetch.begin()
        self._outside_points = (0, "", "", "")
        if nest.store.is_nontemporal:
            self.put(f"result = {PAST_CACHES} if c % {LINE_BYTES} == 0 else transform_result")

    def loop(self, loop: Loop) -> None:
        """Begin a loop; the result is transformed outside that over points."""
        if loop.dim == POINT:
            first, length = self.start[self.col], self.length(self.col)
            self._outside_points = (self.indent, self._tiles(), first, length)
        super().loop(loop)

    def stage(self, stage: Stage) -> None:
        """Print the transform of a block of the image, or of the filter unless it is done ahead."""
        if stage.is_ahead:
            return
        if stage.operand == "A":
            self._transform_image()
        else:
            first = f"b + {self.start[self.col]} * {stride('b', self.col)} * size"
            self.put(self._of_filter(first, self.length(self.col)))
        self.count(stage.operand)

    def prepare_text(self) -> str:
        """Return the body of a function that transforms the whole filter before the nest runs."""
        return f"    {self._of_filter('b', extent(self.col))}\n"

    def compute(self) -> None:
        """Print the call for one tile of the products of a point."""
        first, column, point = self.packed_from["A"][TILES], self.start[self.col], self.start[POINT]
        if not self.is_ahead:
            column = f"({column} - {self.packed_from['B'][self.col]})"
        tile = f"({self.start[TILES]} - {first})"
        self.put(f"rows = {self.length(TILES)}")
        self.put(f"cols = {self.length(self.col)}")
        self.put(f"a_tile = a_panels + ({tile} * ap_t + {point} * image_point) * size")
        panel = f"{column} // register_cols * filter_panel"
        self.put(f"b_tile = b_panels + ({panel} + {point} * filter_point) * size")
        at = f"{tile} * c_t + {point} * product_point"
        self.put(f"c_tile = a_panels + products_at + ({at}) * size")
        self.put("kernel = full if rows == register_rows and cols == register_cols else edge")
        self.prefetch.call("filter_point * size")
        given = dict.fromkeys(names_of(Arguments), "0") | {
            "a": "a_tile", "b": "b_tile", "c": "c_tile", "c_row": "c_row",
            "depth": self.depth, "rows": "rows", "cols": "cols",
            "ahead": self.prefetch.ahead, "ahead_step": self.prefetch.step,
        }  # fmt: skip
        self.put(f"call_address(kernel, {', '.join(given.values())})")
        self.count("micro_kernels")

    def store(self) -> None:
        """Print the transform of a block of products to C."""
        self.indent, tiles, first, length = self._outside_points
        result = "result" if self.nest.store.is_nontemporal else "transform_result"
        self.put(
            f"transform_products({result}, c + {first} * result_channel * out_size,"
            " result_size, result_line, result_pixel, result_channel,"
            f" bias + {first} * out_size, {length}, a_panels + products_at, c_t, product_point,"
            f" {tiles}, tile_height, tile_width, tiles_down, tiles_across, out_height, out_width,"
            " out_size)"
        )
        self.count("C")

    def finish(self) -> None:
        """Print a wait for stores that go past the caches."""
        if self.nest.store.is_nontemporal:
            self.indent = 2
            self.put("wait_for_stores()")

    def _tiles(self) -> str:
        return f"{self.start[TILES]}, {self.end[TILES]}"

    def _transform_image(self) -> None:
        to = f"a_panels, {stride('ap', TILES)}, image_point, {self._tiles()}, a, image_size"
        if self.is_strassen and max(self.nest.problem.strides) > 1:
            self.put(
                f"transform_strided_rows(transform_image, {to}, row_line, row_pixel, image_pixel,"
                " tile_height, rows_down, rows_across, height, width, channels, size)"
            )
            return
        self.put(
            f"transform_tiles(transform_image, {to}, image_line, image_pixel, image_channel,"
            " lines_down, pixels_across, tiles_down, tiles_across, height, width, channels,"
            " pad_top, pad_left, size)"
        )

    def _of_filter(self, source: str, cols: str) -> str:
        """Return the transform of the filters of so many output channels."""
        to = "b_panels, filter_panel, filter_point, register_cols"
        if not is_transposed(self.nest, "B"):
            line = f"{self.depth} * b_stream" if self.is_strassen else "filter_cols * b_tap_source"
            return (
                f"transform_weights(transform_filter, {to}, {source}, {line}, b_tap_source,"
                f" b_stream, {cols}, {self.depth}, size)"
            )
        taps = "filter_rows * filter_cols"
        stored = f"1, 0, {self.depth} * {taps}, filter_cols, 1, {taps}"
        if self.is_strassen:
            row = f"tile_width * {self.depth}"
            stored = f"tile_width, {extent(self.col)}, {row}, {self.depth}, {row}, 1"
        return (
            f"transform_transposed_weights(transform_filter, pack_b_panel, {to},"
            f" b_panels + transposed_at, {source}, {stored}, {cols}, {self.depth}, size)"
        )
