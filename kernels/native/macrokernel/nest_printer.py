"""Prints a loop nest as Python source: its loops, and the lines for its stages and calls.

One pass over the nest prints each node once. What a stage or a call of the micro-kernel becomes
depends on the form of the micro-kernel: see the subclasses.
"""

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass

from tilewise.kernels.arithmetic import Arithmetic
from tilewise.kernels.native.macrokernel.parameters import (
    BARRIER,
    COUNT,
    COUNTERS,
    PARTS,
    REPEAT,
    Moved,
    bounds,
    extent,
    step,
    stride,
)
from tilewise.kernels.native.microkernels.abi import FINISH_ROWS
from tilewise.kernels.native.strides import fills
from tilewise.kernels.nest import Fetch, Loop, LoopKind, Nest, Role, Stage, Store


@dataclass(frozen=True)
class BlockLoop:
    """A loop that moves B's block: names of its variable, its step, and its range."""

    dim: str
    start: str
    step: str
    first: str
    end: str


class NestPrinter(ABC):
    """Prints the loops of a nest, and keeps where the current block of every dim begins and ends.

    Attributes:
        nest: what is printed; steps of its loops are run-time parameters.
        fills: whether the micro-kernel packs panels of B in passing.
        joins: whether a word holds several elements.
        corrects: whether panels of B have column sums behind them.
        moves_zero: whether packed zeros of A are its zero point.
        lines: the printed lines.
        indent: the present depth.
        start, end: the names of the current block's start and end, per dim.
        packed_from: the starts of the block that was packed, per dim, of each packed operand.
        moves_b: the loops that move B's block, outermost first.
    """

    def __init__(self, nest: Nest, how: Arithmetic) -> None:
        self.nest = nest
        self.fills, self.joins, self.corrects = fills(nest, how), how.depth > 1, how.corrects
        self.moves_zero = how.moves_zero
        self.lines: list[str] = []
        self.indent = 1
        self.put(f"for _ in range({REPEAT}):")
        self.indent += 1
        self.start = dict.fromkeys(nest.scheduled, "0")
        self.end = {dim: extent(dim) for dim in nest.scheduled}
        self.packed_from: dict[str, dict[str, str]] = {}
        self.moves_b: list[BlockLoop] = []
        self._levels: Counter[str] = Counter()

    def nest_text(self) -> str:
        """Return the body of the function that runs the nest; several threads leave it together."""
        for here in self.nest.visit():
            match here.node:
                case Loop() as loop:
                    self.loop(loop)
                case Stage() as stage:
                    self.packed_from[stage.operand] = dict(self.start)
                    self.stage(stage)
                case Fetch():
                    self.fetch()
                case Store():
                    self.store()
                case _:
                    self.compute()
        self.finish()
        if len(self.nest.parts) > 1:
            self.indent = 2
            self.put(f"wait_for_all({BARRIER}, {PARTS})")
        return "\n".join(self.lines) + "\n"

    def prepare_text(self) -> str:
        """Return the body of a function that packs all of B before the nest runs; empty if none."""
        return ""

    def stage(self, stage: Stage) -> None:
        """Print the pack of the current block."""

    def fetch(self) -> None:
        """Print what a prefetch needs before the calls."""

    def store(self) -> None:
        """Print what C is made of after the sums, where the micro-kernel does not write it."""

    def finish(self) -> None:
        """Print what follows the loops."""

    @abstractmethod
    def compute(self) -> None:
        """Print the call of the micro-kernel."""

    # Loops and addresses ---------------------------------------------------------------------

    @property
    def is_ahead(self) -> bool:
        """Return whether B is packed before the nest runs."""
        stage = self.nest.stage("B")
        return stage is not None and stage.is_ahead

    def zero(self, role: str) -> str:
        """Return the address of a factor's zero point; 0 without one."""
        name = self.nest.operand(role).name.lower()
        return f"zero_{name}" if name in self.nest.problem.zero else "0"

    def put(self, line: str) -> None:
        """Print a line at the present depth."""
        self.lines.append("    " * self.indent + line)

    def count(self, what: str, more: str = "1") -> None:
        """Print an addition to one of `COUNTERS`, where it is wanted."""
        self.put(f"if {COUNT}: add_word(p, {list(COUNTERS).index(what)}, {more})")

    def loop(self, loop: Loop) -> None:
        """Begin a loop over blocks; of a parallel one each thread has its part as parameters."""
        dim = loop.dim
        if loop.kind is LoopKind.PARALLEL:
            self.start[dim], self.end[dim] = bounds(dim)
            return
        level = self._levels[dim]
        by = self.step(loop)
        start, end = f"{dim}{level}", f"{dim}{level}_end"
        first, behind = self.start[dim], self.end[dim]
        self.put(f"for {start} in range({first}, {behind}, {by}):")
        self.indent += 1
        self.put(f"{end} = min({start} + {by}, {behind})")
        if "B" not in self.packed_from and dim in (self.nest.col, self.nest.k):
            self.moves_b.append(BlockLoop(dim, start, by, first, behind))
        self.start[dim], self.end[dim] = start, end

    def step(self, loop: Loop) -> str:
        """Return the step of a loop, which is the next one over its dim."""
        level = self._levels[loop.dim]
        self._levels[loop.dim] += 1
        return step(loop.dim, level)

    def length(self, dim: str) -> str:
        """Return the length of the current block of a dim."""
        return f"{self.end[dim]} - {self.start[dim]}"

    def lead(self, role: str) -> tuple[str, ...]:
        """Return the LEAD dims of an operand."""
        return tuple(d for d in self.nest.named(Role.LEAD) if d in self.nest.operand(role).dims)

    def offset(
        self, operand: Moved, dims: tuple[str, ...], base: dict[str, str] | None = None
    ) -> str:
        """Return the sum of (start - base) * stride over some dims of an operand."""
        terms = []
        for dim in dims:
            here, origin = self.start[dim], (base or {}).get(dim, "0")
            if here == origin:
                continue
            distance = here if origin == "0" else f"({here} - {origin})"
            terms.append(f"{distance} * {stride(operand, dim)}")
        return " + ".join(terms) or "0"

    def sums(self, dims: tuple[str, ...]) -> str:
        """Return the address of the current block of sums: in C, or apart from it."""
        if self.nest.store.finishes_apart:
            return f"c_sums + ({self.offset('sums', dims)}) * out_size"
        return f"c + ({self.offset('c', dims)}) * out_size"

    @property
    def sums_row(self) -> str:
        """Return the name of the elements between rows of sums."""
        return "sums_row" if self.nest.store.finishes_apart else "c_row"

    def finish_block(
        self,
        dims: tuple[str, ...],
        sums: str,
        rows: str,
        cols: str,
        channel: str,
        within: str = "0",
    ) -> None:
        """Print that C is made of whole sums, `within` elements behind the current block.

        `channel` is the place of the first one's bias, and of its scale.
        """
        store, k = self.nest.store, self.nest.k
        if store.finishes_apart:
            at = f"({self.offset('c', dims)} + {within}) * c_size"
            added = f"add + {at}" if store.has_addition else f"c + {at}"
            self.put(
                f"if {self.end[k]} == {extent(k)}: call_address({FINISH_ROWS}, c + {at}, c_row,"
                f" {sums}, sums_row, {rows}, {cols}, {added},"
                f" scale_c + ({channel if store.requant == 'channel' else '0'}) * 4, zero_c)"
            )

    def b_in_place(self, row: str | None = None) -> str:
        """Return the address of the first row, or another one, and column of B's present block."""
        row = row or self.start[self.nest.k]
        source = self.offset("b", (*self.lead("B"), self.nest.col))
        return f"b + ({row} * b_stream + {source}) * size"
