"""The call of the micro-kernel for one tile of C."""

from tilewise.kernels.native.macrokernel.pack_printer import PackPrinter
from tilewise.kernels.native.macrokernel.parameters import RegisterTile, names_of
from tilewise.kernels.native.macrokernel.prefetch_printer import PrefetchPrinter
from tilewise.kernels.native.macrokernel.scope import Scope
from tilewise.kernels.native.microkernels.abi import Arguments
from tilewise.kernels.nest import Fetched, Role

PANEL_BYTES = "(taps * words * register_cols * word_size + sums_size)"


class KernelPrinter:
    """Prints where a tile's operands lie, what it is to do, and the call."""

    def __init__(self, scope: Scope, packs: PackPrinter, prefetch: PrefetchPrinter) -> None:
        self.scope, self.nest = scope, scope.nest
        self.packs, self.prefetch = packs, prefetch

    def kernel(self) -> None:
        """The innermost lines: everything for one tile."""
        scope = self.scope
        self._sizes()
        self._operands()
        if scope.fills:
            self.packs.fill_panel()
        if scope.fetches(Fetched.NEXT_BLOCK):
            self.prefetch.fetch_ahead()
        if scope.fetches(Fetched.NEXT_PANEL):
            self.prefetch.fetch_panels(PANEL_BYTES)
        arguments = self._arguments()
        scope.put(f"call_address(kernel, {', '.join(vars(arguments).values())})")
        scope.count("1")

    def _sizes(self) -> None:
        scope, nest = self.scope, self.nest
        stream = nest.k
        scope.put(f"rows = {scope.length(nest.row)}")
        scope.put(f"cols = {scope.length(nest.col)}")
        scope.put(f"depth = {scope.length(stream)}")
        scope.put("words = (depth + word_depth - 1) // word_depth")
        scope.put(f"flags = flags_first if {scope.start[stream]} == 0 else flags_later")
        scope.put(f"if {scope.end[stream]} == {stream}_extent: flags |= flags_last")

    def _operands(self) -> None:
        scope = self.scope
        scope.put(f"a_tile = {self._a_tile()}")
        scope.put(f"b_tile = {self._b_tile()}")
        c = self._c_tile()
        scope.put(f"c_tile = c + ({c}) * out_size")
        scope.put("kernel = full if rows == register_rows and cols == register_cols else edge")
        for name in names_of(RegisterTile):
            scope.parameter(name)
        b_tap = "words * register_cols" if self.nest.stage("B") else "b_tap_source"
        if self.nest.image == "A":
            b_tap += " * depth_factor"
        scope.put(f"b_tap, beside = {b_tap}, {self._sums()}")

    def _arguments(self) -> Arguments[str]:
        scope, nest = self.scope, self.nest
        rows, panels = scope.fetches(Fetched.NEXT_BLOCK), scope.fetches(Fetched.NEXT_PANEL)
        step = "is_left * b_stream * size" if rows else "ahead_step" if panels else "0"
        of_bias = (d for d in nest.scheduled if d in nest.operand("bias").dims)
        bias = scope.offset("bias", tuple(of_bias))
        return Arguments(
            a="a_tile",
            b="b_tile",
            c="c_tile",
            bias=f"bias + ({bias}) * out_size",
            c_row="c_row",
            a_tap_row="a_tap_row",
            a_tap_col="a_tap_col",
            b_tap="b_tap",
            tap_rows="tap_rows",
            tap_cols="tap_cols",
            depth="words * depth_factor",
            flags="flags",
            rows="rows",
            cols="cols",
            beside="beside",
            ahead="ahead" if rows or panels else "0",
            ahead_step=step,
        )

    def _c_tile(self) -> str:
        """Elements from C's beginning to the tile."""
        scope, nest = self.scope, self.nest
        rows = (*nest.named(Role.LEAD), *nest.rows)
        return scope.offset("c", (*rows, nest.col))

    def _a_tile(self) -> str:
        scope, nest = self.scope, self.nest
        if not nest.stage("A"):
            offset = scope.offset("a", (*scope.lead("A"), *nest.rows))
            return f"a + ({scope.start[nest.k]} * a_stream + {offset}) * size"
        moving = tuple(d for d in nest.rows if not nest.dim(d).single)
        return f"a_panels + ({scope.offset('ap', moving, scope.packed_from['A'])}) * packed_size"

    def _b_tile(self) -> str:
        scope, col = self.scope, self.nest.col
        if not self.nest.stage("B"):
            return scope.b_in_place()
        if scope.is_ahead:
            return f"{self._chunk()} + {scope.start[col]} // register_cols * {PANEL_BYTES}"
        panel = f"({scope.start[col]} - {scope.packed_from['B'][col]}) // register_cols"
        return f"b_panels + {panel} * {PANEL_BYTES}"

    def _chunk(self) -> str:
        """Where the present chunk of panels that were packed ahead begins."""
        scope, nest = self.scope, self.nest
        at, stream = "b_panels", nest.k
        for lead in nest.named(Role.LEAD):
            at += f" + {scope.start[lead]} * batch_bytes"
        if scope.start[stream] != "0":
            at += f" + {scope.start[stream]} // {stream}_step0 * chunk_bytes"
        return at

    def _sums(self) -> str:
        """Column sums lie behind the panel that they belong to."""
        if not self.scope.corrects:
            return "0"
        return "b_tile + taps * words * register_cols * word_size"
