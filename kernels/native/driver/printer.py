"""The driver around the micro-kernel: Python source printed from the loop nest, one per structure.

Which loops there are, in which order, and where the packs happen decide the source;
every size is a run-time parameter. So a new size costs no compilation, and a new
structure costs one, once, kept on disk. Everything in a driver is an i64, and its one
argument is the address of its parameters. The threads of a parallel nest run the same
driver on parameters of their own, and meet at its end.

The source is a module that Numba compiles; what the search calls is compiled without it
(`kernels.native.language.to_ir`).
"""

import re
from dataclasses import dataclass

from kernels.arithmetic import Arithmetic
from kernels.loopnest import Copy, Loop, Nest
from kernels.native.driver.pack_printer import PackPrinter
from kernels.native.strides import Strides
from kernels.problem import Problem
from kernels.schedule import Schedule

_HEADER = '''"""Driver printed by Tilewise; see kernels/native/driver/printer.py."""
from numba import njit

from kernels.native.language.barrier import wait_for_all
from kernels.native.language.words import add_word, call_address, word
from kernels.native.language.packs import pack_b, pack_image, pack_patches, pack_transposed_a


@njit("void(int64)", nogil=True)
def driver(p):
'''


@dataclass(frozen=True)
class DriverSource:
    """A driver's source.

    Attributes:
        text: of a module.
        parameters: their names, in order.
        prepares: whether B is packed ahead by a function `prepare` beside it.
    """

    text: str
    parameters: tuple[str, ...]
    prepares: bool

    def calls(self, name: str) -> bool:
        """Whether the function at the address that a parameter holds may be called."""
        return f"    {name} = word(" in self.text


def print_driver(
    problem: Problem, schedule: Schedule, nest: Nest, strides: Strides, how: Arithmetic
) -> DriverSource:
    """Print the driver for the structure of `nest`; with no size in it."""
    return _Printer(problem, schedule, nest, strides, how).print()


class _Printer(PackPrinter):
    def print(self) -> DriverSource:
        for entry in self.nest.entries:
            if isinstance(entry, Loop):
                self.loop(entry)
            elif isinstance(entry, Copy):
                self.pack(entry.operand)
            else:
                self.kernel()
        if self.is_parallel:
            self.indent = 2
            self.put("wait_for_all(barrier, parts)")
        body = "\n".join(self.lines)
        used = set(re.findall(r"\w+", body))
        reads = "".join(
            f"    {name} = word(p, {i})\n" for i, name in enumerate(self.parameters) if name in used
        )
        text = f"{_HEADER}{reads}{body}\n"
        if self.is_ahead:
            text += self.print_prepare()
        return DriverSource(text, tuple(self.parameters), self.is_ahead)

    def kernel(self) -> None:
        space = self.space
        row, col, stream = space.row, space.col, space.stream
        self.put(f"rows = {self.end[row]} - {self.start[row]}")
        self.put(f"cols = {self.end[col]} - {self.start[col]}")
        self.put(f"depth = {self.end[stream]} - {self.start[stream]}")
        self.put("words = (depth + word_depth - 1) // word_depth")
        self.put(f"flags = flags_first if {self.start[stream]} == 0 else flags_later")
        self.put(f"if {self.end[stream]} == {stream}_extent: flags |= flags_last")
        self.put(f"a_tile = {self._a_tile()}")
        self.put(f"b_tile = {self._b_tile()}")
        c_dims = (*space.lead, *space.row_dims, col)
        self.put(f"c_tile = c + ({self.offset('c', c_dims, {})}) * out_size")
        self.put("kernel = full if rows == register_rows and cols == register_cols else edge")
        for name in ("register_rows", "register_cols"):
            self.parameter(name)
        b_tap = "words * register_cols" if self.schedule.packs("B") else "b_tap_source"
        if self.is_conv:
            b_tap += " * depth_factor"
        self.put(f"b_tap, beside = {b_tap}, {self._sums()}")
        if self.fills:
            self.fill_panel()
        ahead = "0, 0"
        if self.schedule.prefetches:
            self.fetch_ahead()
            ahead = "ahead, is_left * b_stream * size"
        bias = self.offset("bias", tuple(d for d in self.bias_dims if d in space.dims), {})
        self.put(
            f"call_address(kernel, a_tile, b_tile, c_tile, bias + ({bias}) * out_size,"
            " c_row, a_tap_row, a_tap_col, b_tap, tap_rows, tap_cols, words * depth_factor,"
            f" flags, rows, cols, beside, {ahead})"
        )
        self.count("1")

    def _a_tile(self) -> str:
        dims = self.space.row_dims
        if not self.schedule.packs("A"):
            offset = self.offset("a", (*self.lead("A"), *dims), {})
            return f"a + ({self.start[self.space.stream]} * a_stream + {offset}) * size"
        moving = tuple(d for d in dims if d not in self.space.singles)
        return f"a_panels + ({self.offset('ap', moving, self.packed_from['A'])}) * packed_size"

    def _b_tile(self) -> str:
        col = self.space.col
        if not self.schedule.packs("B"):
            return self.b_in_place()
        panel_bytes = "(taps * words * register_cols * word_size + sums_size)"
        if self.is_ahead:
            return f"{self._chunk()} + {self.start[col]} // register_cols * {panel_bytes}"
        panel = f"({self.start[col]} - {self.packed_from['B'][col]}) // register_cols"
        return f"b_panels + {panel} * {panel_bytes}"

    def _chunk(self) -> str:
        """Where the present chunk of panels that were packed ahead begins."""
        at, stream = "b_panels", self.space.stream
        for lead in self.space.lead:
            at += f" + {self.start[lead]} * batch_bytes"
        if self.start[stream] != "0":
            at += f" + {self.start[stream]} // {stream}_step0 * chunk_bytes"
        return at

    def _sums(self) -> str:
        """Column sums lie behind the panel that they belong to."""
        return "b_tile + taps * words * register_cols * word_size" if self.corrects else "0"
