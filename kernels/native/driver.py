"""The driver around the micro-kernel: Python source printed from the loop nest, one per structure.

Which loops there are, in which order, and where the packs happen decide the source;
every size is a run-time parameter. So a new size costs no compilation, and a new
structure costs one, once, kept on disk. Everything in a driver is an i64, and its one
argument is the address of its parameters. The threads of a parallel nest run the same
driver on parameters of their own, and meet at its end.
"""

from dataclasses import dataclass

from kernels.arithmetic import Arithmetic
from kernels.loopnest import Copy, Loop, Nest
from kernels.native.geometry import Geometry
from kernels.native.microkernel import ADD_BIAS, LOAD_C, RELU
from kernels.problem import Problem
from kernels.problem.iteration import is_packed_ahead
from kernels.schedule import Schedule

_HEADER = '''"""Driver printed by Tilewise; see kernels/native/driver.py."""
from numba import cfunc, njit

from kernels.native.barrier import wait_for_all
from kernels.native.runtime import (
    add_word, call_address, pack_b, pack_image, pack_patches, pack_transposed_a, word,
)


@njit("void(int64)", nogil=True, cache=True)
def driver(p):
'''

_PREPARE = """

@njit("void(int64)", nogil=True, cache=True)
def prepare(p):
"""

_ENTRY = """

@cfunc("void(int64)", cache=True)
def entry(p):
    driver(p)
"""

_FIXED = (
    "a", "b", "c", "bias", "a_panels", "b_panels",
    "full", "edge", "pack_a_panel", "pack_b_panel", "copy_rows", "count", "repeat",
    "size", "out_size", "packed_size", "packed_zero", "word_depth", "word_size", "sums_size",
    "lanes", "taps", "tap_rows", "tap_cols", "depth_factor",
    "a_tap_row", "a_tap_col", "b_tap_source", "a_stream", "b_stream", "a_row_source",
    "chunk_bytes", "batch_bytes", "unroll", "packed_row", "c_row",
    "flags_first", "flags_later", "flags_last",
)  # fmt: skip
_THREADS = ("barrier", "parts")
_CONV = ("height", "width", "channels", "conv_stride", "pad", "row_reach", "packed_cols")
_PATCHES = (
    "copy_patches", "raw_at", "out_width", "height", "width", "filter_rows", "filter_cols",
    "conv_stride", "dilation", "pad",
)  # fmt: skip


@dataclass(frozen=True)
class DriverSource:
    """The source of a driver, the names of its parameters in order, and whether B is
    packed ahead by a function `prepare` beside it.
    """

    text: str
    parameters: tuple[str, ...]
    prepares: bool


@dataclass(frozen=True)
class _Move:
    """A loop that moves B's block: names of its variable, its step, and its range."""

    dim: str
    start: str
    step: str
    first: str
    end: str


def print_driver(
    problem: Problem, schedule: Schedule, nest: Nest, strides: Geometry, how: Arithmetic
) -> DriverSource:
    """Print the driver for the structure of `nest`; with no size in it."""
    return _Printer(problem, schedule, nest, strides, how).print()


class _Printer:
    def __init__(
        self,
        problem: Problem,
        schedule: Schedule,
        nest: Nest,
        strides: Geometry,
        how: Arithmetic,
    ) -> None:
        self.is_ahead = is_packed_ahead(problem, "B") and schedule.packs("B")
        self.schedule, self.nest = schedule, nest
        self.a_transposed, self.b_transposed = strides.a_transposed, strides.b_transposed
        self.joins, self.corrects = how.depth > 1, how.offset
        self.space = nest.space
        self.is_conv = self.space.image == "A"
        self.bias_dims = tuple(strides.bias_dims)
        self.lines: list[str] = []
        self.indent = 1
        self.put("for _ in range(repeat):")
        self.indent += 1
        self.is_parallel = len(nest.parts) > 1
        self.parameters = list(
            _FIXED
            + (_CONV if self.is_conv else _PATCHES if self.space.patches else ())
            + (_THREADS if self.is_parallel else ())
        )
        # The names of the current block's start and end, per dim.
        self.start = dict.fromkeys(self.space.dims, "0")
        self.end = {d: self.parameter(f"{d}_extent") for d in self.space.dims}
        self.packed_from: dict[str, dict[str, str]] = {}
        self.packed_end = ""
        self.moves_b: list[_Move] = []

    def parameter(self, name: str) -> str:
        self.parameters.append(name)
        return name

    def put(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

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
        reads = "".join(f"    {name} = word(p, {i})\n" for i, name in enumerate(self.parameters))
        body = "\n".join(self.lines)
        text = f"{_HEADER}{reads}{body}\n"
        if self.is_ahead:
            text += self.print_prepare()
        if self.is_parallel:
            text += _ENTRY
        return DriverSource(text, tuple(self.parameters), self.is_ahead)

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

    def loop(self, loop: Loop) -> None:
        if loop.kind == "parallel":
            self.start[loop.dim] = self.parameter(f"{loop.dim}_first")
            self.end[loop.dim] = self.parameter(f"{loop.dim}_end")
            return
        level = sum(name.startswith(f"{loop.dim}_step") for name in self.parameters)
        step = self.parameter(f"{loop.dim}_step{level}")
        start, end = f"{loop.dim}{level}", f"{loop.dim}{level}_end"
        self.put(f"for {start} in range({self.start[loop.dim]}, {self.end[loop.dim]}, {step}):")
        self.indent += 1
        self.put(f"{end} = min({start} + {step}, {self.end[loop.dim]})")
        if "B" not in self.packed_from and loop.dim in (self.space.col, self.space.stream):
            around = (self.start[loop.dim], self.end[loop.dim])
            self.moves_b.append(_Move(loop.dim, start, step, *around))
        self.start[loop.dim], self.end[loop.dim] = start, end

    def _offset(self, operand: str, dims: tuple[str, ...], base: dict[str, str]) -> str:
        """Sum of (start - base) * stride over the dims that the operand has."""
        terms = []
        for dim in dims:
            if self.start[dim] == base.get(dim, "0"):
                continue
            origin = base.get(dim, "0")
            here = self.start[dim]
            distance = here if origin == "0" else f"({here} - {origin})"
            terms.append(f"{distance} * {self._ensure(f'{operand}_{dim}')}")
        return " + ".join(terms) or "0"

    def _ensure(self, name: str) -> str:
        return name if name in self.parameters else self.parameter(name)

    def pack(self, operand: str) -> None:
        self.packed_from[operand] = dict(self.start)
        depth = f"({self.end[self.space.stream]} - {self.start[self.space.stream]})"
        if operand == "B" and self.is_ahead:
            for dim in (*self._lead("B"), self.space.col):
                self._ensure(f"b_{dim}")
            return
        if operand == "B" and self.space.patches:
            self.pack_patches(depth)
        elif operand == "B":
            self.pack_b(depth)
            if self.schedule.prefetches:
                self.packed_end = self.end[self.space.col]
                self.find_next_block()
        elif self.is_conv:
            self.pack_image(depth)
        else:
            self.pack_rows(depth)
        self.count(_PACKED[operand])

    def count(self, what: str) -> None:
        self.put(f"if count: add_word(p, {self.parameters.index('count')}, {what})")

    def _lead(self, operand: str) -> tuple[str, ...]:
        """The dims of `lead` that move an operand."""
        return tuple(d for d in self.space.lead if d in self.space.operand_dims[operand])

    def pack_b(self, depth: str) -> None:
        """B's block to panels; the source is where its first row and column lie."""
        col, stream = self.space.col, self.space.stream
        source = self._offset("b", (*self._lead("B"), col), {})
        cols = f"{self.end[col]} - {self.start[col]}"
        step = self._ensure(f"b_{col}")
        row = step if self.b_transposed else "b_stream"
        self.put(
            "pack_b(pack_b_panel, b_panels,"
            f" b + ({self.start[stream]} * b_stream + {source}) * size, {cols},"
            f" register_cols, taps, b_tap_source, {depth}, {row}, {step}, size,"
            " word_depth, word_size, sums_size)"
        )

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
        lead = self._offset("b", self._lead("B"), {})
        self.put(
            f"next_block = b + ({ahead[stream]} * b_stream"
            f" + {ahead[col]} * {self._ensure(f'b_{col}')} + {lead}) * size"
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
        source = self._offset("b", self._lead("B"), {})
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
        source = self._offset("a", (*self._lead("A"), row), {})
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
        source = self._offset("a", (*self._lead("A"), "n"), {})
        self.put(
            f"pack_image(copy_rows, a_panels, a + ({source} + {self.start['ci']}) * size,"
            f" {self.start['oh']} * conv_stride - pad, {self.start['ow']} * conv_stride - pad,"
            f" {rows}, packed_cols, height, width, channels, {depth},"
            " packed_row, size, packed_size, packed_zero)"
        )

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
        self.put(f"c_tile = c + ({self._offset('c', c_dims, {})}) * out_size")
        self.put("kernel = full if rows == register_rows and cols == register_cols else edge")
        for name in ("register_rows", "register_cols"):
            self.parameter(name)
        b_tap = "words * register_cols" if self.schedule.packs("B") else "b_tap_source"
        if self.is_conv:
            b_tap += " * depth_factor"
        ahead = "0, 0"
        if self.schedule.prefetches:
            self.fetch_ahead()
            ahead = "ahead, is_left * b_stream * size"
        bias = self._offset("bias", tuple(d for d in self.bias_dims if d in space.dims), {})
        self.put(
            f"call_address(kernel, a_tile, b_tile, c_tile, bias + ({bias}) * out_size,"
            f" c_row, a_tap_row, a_tap_col, {b_tap}, tap_rows, tap_cols, words * depth_factor,"
            f" flags, rows, cols, {self._sums()}, {ahead})"
        )
        self.count("1")

    def _a_tile(self) -> str:
        dims = self.space.row_dims
        if not self.schedule.packs("A"):
            offset = self._offset("a", (*self._lead("A"), *dims), {})
            return f"a + ({self.start[self.space.stream]} * a_stream + {offset}) * size"
        moving = tuple(d for d in dims if d not in self.space.singles)
        return f"a_panels + ({self._offset('ap', moving, self.packed_from['A'])}) * packed_size"

    def _b_tile(self) -> str:
        col, stream = self.space.col, self.space.stream
        if not self.schedule.packs("B"):
            offset = self._offset("b", (*self._lead("B"), col), {})
            return f"b + ({self.start[stream]} * b_stream + {offset}) * size"
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


# Counters share one i64: micro-kernel calls in the low bits, packs above them.
PACK_A_SHIFT, PACK_B_SHIFT = 32, 48
_PACKED = {"A": f"{1 << PACK_A_SHIFT}", "B": f"{1 << PACK_B_SHIFT}"}


def flags(load_first: bool, bias: bool, relu: bool) -> dict[str, int]:
    """The micro-kernel's flags on the first chunk of the reduction, later ones, and the last."""
    return {
        "flags_first": LOAD_C * load_first | ADD_BIAS * bias,
        "flags_later": LOAD_C,
        "flags_last": RELU * relu,
    }
