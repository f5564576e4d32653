"""The nest of a schedule with the step `winograd` or `strassen`: transforms around products."""

from tilewise.kernels.native.ir.vectors import LINE_BYTES
from tilewise.kernels.native.macrokernel.pack_printer import PACKED
from tilewise.kernels.native.macrokernel.parameters import (
    TRANSFORMED,
    RegisterTile,
    StridedRows,
    Transformed,
    TransformSizes,
    extent,
    names_of,
    stride,
)
from tilewise.kernels.native.macrokernel.prefetch_printer import PrefetchPrinter
from tilewise.kernels.native.macrokernel.scope import Scope
from tilewise.kernels.native.microkernels.abi import PAST_CACHES, TRANSFORMS, Arguments
from tilewise.kernels.native.strides import is_of_quadrants, is_transposed
from tilewise.kernels.nest import Compute, Fetched, Loop, Stage, Store
from tilewise.kernels.steps.algorithm import POINT, TILES

_TILES_OF_AN_IMAGE = "tile_height, tile_width, tiles_down, tiles_across"
_FILTER = ("filter_rows", "filter_cols")


class TransformPrinter:
    """Prints the transforms where the nest has its copies, and the call for one tile."""

    def __init__(self, scope: Scope) -> None:
        self.scope, self.nested = scope, scope.nest
        self.col, self.depth = scope.nest.col, extent(scope.nest.k)
        self.quadrants = is_of_quadrants(scope.nest)
        self.strided_rows = self.quadrants and scope.nest.problem.stride > 1
        self.prefetch = PrefetchPrinter(scope)
        own: tuple[str, ...] = () if self.quadrants else _FILTER
        if self.strided_rows:
            own = names_of(StridedRows)
        for name in (*TRANSFORMS, *names_of(TransformSizes), *names_of(Transformed), *own):
            scope.parameter(name)
        scope.parameter(TRANSFORMED)
        for name in (*names_of(RegisterTile), stride("ap", TILES), stride("c", TILES)):
            scope.parameter(name)

    def nest(self) -> None:
        """The loops, and what is in them; C is transformed behind those that it lies in."""
        behind, tiles, cols = 0, "", ""
        if self.scope.fetches(Fetched.NEXT_PANEL):
            self.prefetch.begin_panels()
        if self.nested.store.is_nontemporal:
            aligned = f"c % {LINE_BYTES} == 0"
            self.scope.put(f"result = {PAST_CACHES} if {aligned} else transform_result")
        for here in self.nested.visit():
            node = here.node
            if isinstance(node, Loop):
                if node.dim == POINT:
                    behind, tiles, cols = self.scope.indent, self._tiles(), self._cols()
                self.scope.loop(node)
            elif isinstance(node, Compute):
                self._kernel()
            elif isinstance(node, Store):
                self.scope.indent = behind
                self._result(tiles, cols)
            elif isinstance(node, Stage):
                self.scope.packed_from[node.operand] = dict(self.scope.start)
                self._image() if node.operand == "A" else self._filter()
        if self.nested.store.is_nontemporal:
            self.scope.indent = 2
            self.scope.put("wait_for_stores()")

    def _tiles(self) -> str:
        return f"{self.scope.start[TILES]}, {self.scope.end[TILES]}"

    def _cols(self) -> str:
        return f"{self.scope.start[self.col]}, {self.scope.length(self.col)}"

    def _image(self) -> None:
        scope, to, image = self.scope, "a_panels", "a"
        if self.strided_rows:
            scope.put(
                f"transform_strided_rows(transform_image, {to}, {stride('ap', TILES)}, image_point,"
                f" {self._tiles()}, {image}, image_size, row_line, row_pixel, image_pixel,"
                " tile_height, rows_down, rows_across, height, width, channels, size)"
            )
            scope.count(PACKED["A"])
            return
        scope.put(
            f"transform_tiles(transform_image, {to}, {stride('ap', TILES)}, image_point,"
            f" {self._tiles()}, {image}, image_size, image_line, image_pixel, image_channel,"
            " lines_down, pixels_across, tiles_down, tiles_across, height, width, channels, pad,"
            " size)"
        )
        scope.count(PACKED["A"])

    def _filter(self) -> None:
        if self.scope.is_ahead:
            return
        scope = self.scope
        first = f"b + {scope.start[self.col]} * {scope.ensure(stride('b', self.col))} * size"
        scope.put(self._of_weights(first, scope.length(self.col)))
        scope.count(PACKED["B"])

    def prepare(self) -> str:
        """The body of a function that transforms the whole filter before the driver runs."""
        return f"    {self._of_weights('b', extent(self.col))}\n"

    def _of_weights(self, source: str, cols: str) -> str:
        """The transform of so many output channels' filters."""
        to = "b_panels, filter_panel, filter_point, register_cols"
        if is_transposed(self.nested, "B"):
            name = "transform_turned_quadrants" if self.quadrants else "transform_turned_weights"
            taps = (
                f"tile_width, {extent(self.col)}" if self.quadrants else "filter_rows, filter_cols"
            )
            return (
                f"{name}(transform_filter, pack_b_panel, {to}, b_panels + turned_at, {source},"
                f" {taps}, {cols}, {self.depth}, size)"
            )
        line = f"{self.depth} * b_stream" if self.quadrants else "filter_cols * b_tap_source"
        return (
            f"transform_weights(transform_filter, {to}, {source}, {line}, b_tap_source, b_stream,"
            f" {cols}, {self.depth}, size)"
        )

    def _kernel(self) -> None:
        scope = self.scope
        first = scope.packed_from["A"][TILES]
        column = scope.start[self.col]
        if not self.scope.is_ahead:
            column = f"({column} - {scope.packed_from['B'][self.col]})"
        point, tile = scope.start[POINT], f"({scope.start[TILES]} - {first})"
        scope.put(f"rows = {scope.length(TILES)}")
        scope.put(f"cols = {scope.length(self.col)}")
        scope.put(f"a_tile = a_panels + ({tile} * ap_t + {point} * image_point) * size")
        panel = f"{column} // register_cols * filter_panel"
        scope.put(f"b_tile = b_panels + ({panel} + {point} * filter_point) * size")
        at = f"{tile} * c_t + {point} * product_point"
        scope.put(f"c_tile = a_panels + products_at + ({at}) * size")
        scope.put("kernel = full if rows == register_rows and cols == register_cols else edge")
        given = dict.fromkeys(names_of(Arguments), "0") | {
            "a": "a_tile", "b": "b_tile", "c": "c_tile", "c_row": "c_row",
            "depth": self.depth, "rows": "rows", "cols": "cols",
        }  # fmt: skip
        if self.scope.fetches(Fetched.NEXT_PANEL):
            self.prefetch.fetch_panels("filter_point * size")
            given |= {"ahead": "ahead", "ahead_step": "ahead_step"}
        scope.put(f"call_address(kernel, {', '.join(given.values())})")
        scope.count("1")

    def _result(self, tiles: str, cols: str) -> None:
        scope = self.scope
        first, length = cols.split(", ")
        at = f"{first} * result_channel"
        result = "result" if self.nested.store.is_nontemporal else "transform_result"
        scope.put(
            f"transform_products({result}, c + {at} * out_size,"
            " result_size, result_line, result_pixel, result_channel,"
            f" bias + {first} * out_size, {length}, a_panels + products_at, c_t, product_point,"
            f" {tiles}, {_TILES_OF_AN_IMAGE}, out_height, out_width, out_size)"
        )
        place = scope.parameters.index(TRANSFORMED)
        scope.put(f"if count: add_word(p, {place}, 1)")
