"""What is in scope while a driver is printed: its lines, its parameters, the current block."""

from dataclasses import dataclass

from kernels.arithmetic import Arithmetic
from kernels.loopnest import Loop, Nest
from kernels.native.strides import Strides
from kernels.problem import Problem
from kernels.problem.iteration import is_packed_ahead
from kernels.schedule import Schedule

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
class Move:
    """A loop that moves B's block: names of its variable, its step, and its range."""

    dim: str
    start: str
    step: str
    first: str
    end: str


class Scope:
    """Prints loops, and knows where the current block of every dim starts and ends."""

    def __init__(
        self,
        problem: Problem,
        schedule: Schedule,
        nest: Nest,
        strides: Strides,
        how: Arithmetic,
    ) -> None:
        self.is_ahead = is_packed_ahead(problem, "B") and schedule.packs("B")
        self.schedule, self.nest = schedule, nest
        self.a_transposed, self.b_transposed = strides.a.is_transposed, strides.b.is_transposed
        self.joins, self.corrects = how.depth > 1, how.offset
        self.fills = strides.words.filled_row > 0
        self.space = nest.space
        self.is_conv = self.space.image == "A"
        self.bias_dims = tuple(strides.bias)
        self.lines: list[str] = []
        self.indent = 1
        self.put("for _ in range(repeat):")
        self.indent += 1
        self.is_parallel = len(nest.parts) > 1
        self.parameters = list(
            _FIXED
            + (_CONV if self.is_conv else _PATCHES if self.space.patches else ())
            + (("filling",) if self.fills else ())
            + (_THREADS if self.is_parallel else ())
        )
        # The names of the current block's start and end, per dim.
        self.start = dict.fromkeys(self.space.dims, "0")
        self.end = {d: self.parameter(f"{d}_extent") for d in self.space.dims}
        self.packed_from: dict[str, dict[str, str]] = {}
        self.packed_end = ""
        self.moves_b: list[Move] = []

    def parameter(self, name: str) -> str:
        """A parameter of the driver, from now on."""
        self.parameters.append(name)
        return name

    def put(self, line: str) -> None:
        """A line at the present depth."""
        self.lines.append("    " * self.indent + line)

    def loop(self, loop: Loop) -> None:
        """Begin a loop over blocks; a parallel one has its part as parameters."""
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
            self.moves_b.append(Move(loop.dim, start, step, *around))
        self.start[loop.dim], self.end[loop.dim] = start, end

    def offset(self, operand: str, dims: tuple[str, ...], base: dict[str, str]) -> str:
        """Sum of (start - base) * stride over the dims that the operand has."""
        terms = []
        for dim in dims:
            if self.start[dim] == base.get(dim, "0"):
                continue
            origin = base.get(dim, "0")
            here = self.start[dim]
            distance = here if origin == "0" else f"({here} - {origin})"
            terms.append(f"{distance} * {self.ensure(f'{operand}_{dim}')}")
        return " + ".join(terms) or "0"

    def ensure(self, name: str) -> str:
        """A parameter, new or not."""
        return name if name in self.parameters else self.parameter(name)

    def count(self, what: str) -> None:
        """Add to the counter of calls and packs, where somebody counts."""
        self.put(f"if count: add_word(p, {self.parameters.index('count')}, {what})")

    def lead(self, operand: str) -> tuple[str, ...]:
        """The dims of `lead` that move an operand."""
        return tuple(d for d in self.space.lead if d in self.space.operand_dims[operand])
