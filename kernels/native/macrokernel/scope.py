"""What is in scope while a driver is printed: its lines, its parameters, the current block."""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from tilewise.kernels.arithmetic import Arithmetic
from tilewise.kernels.native.macrokernel.parameters import (
    COUNT,
    REPEAT,
    bounds,
    extent,
    fixed_parameters,
    step,
    stride,
)
from tilewise.kernels.native.strides import fills
from tilewise.kernels.nest import Fetched, Loop, LoopKind, Nest, Role

_WORD = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True)
class Move:
    """A loop that moves B's block: names of its variable, its step, and its range."""

    dim: str
    start: str
    step: str
    first: str
    end: str


class Scope:
    """Prints loops, and knows where the current block of every dim starts and ends.

    Attributes:
        nest: what is printed; steps of its loops are run-time parameters.
        fills: whether the micro-kernel packs panels of B in passing.
        joins: whether a word holds several elements.
        corrects: whether panels of B have column sums behind them.
        lines: what was printed.
        indent: the present depth.
        parameters: their names, in order.
        start, end: the names of the current block's start and end, per dim.
        packed_from: the starts of the block that was packed, per dim, of each packed operand.
        moves_b: the loops that move B's block, outermost first.
    """

    def __init__(self, nest: Nest, how: Arithmetic) -> None:
        self.nest = nest
        self.fills, self.joins, self.corrects = fills(nest, how), how.depth > 1, how.offset > 0
        self.lines: list[str] = []
        self.indent = 1
        self.put(f"for _ in range({REPEAT}):")
        self.indent += 1
        fixed = fixed_parameters(
            packs_image=nest.image == "A",
            gathers=nest.operand("B").is_gathered and not nest.group,
            fills=self.fills,
            is_parallel=len(nest.parts) > 1,
            writes_past_caches=nest.store.is_nontemporal,
        )
        self.parameters = list(fixed)
        self.start = dict.fromkeys(nest.scheduled, "0")
        self.end = {dim: self.parameter(extent(dim)) for dim in nest.scheduled}
        self.packed_from: dict[str, dict[str, str]] = {}
        self.moves_b: list[Move] = []
        self._levels: Counter[str] = Counter()

    @property
    def is_ahead(self) -> bool:
        """Whether B is packed before the driver runs."""
        stage = self.nest.stage("B")
        return stage is not None and stage.is_ahead

    def fetches(self, what: Fetched) -> bool:
        """Whether calls prefetch the next block of B, or the panel behind their own."""
        return any(fetch.what is what for fetch in self.nest.fetches)

    def lead(self, role: str) -> tuple[str, ...]:
        """The dims that are visited one at a time, outside of rows and columns, of an operand."""
        return tuple(d for d in self.nest.named(Role.LEAD) if d in self.nest.operand(role).dims)

    def parameter(self, name: str) -> str:
        """A parameter of the driver, from now on."""
        self.parameters.append(name)
        return name

    def ensure(self, name: str) -> str:
        """A parameter, new or not."""
        return name if name in self.parameters else self.parameter(name)

    def put(self, line: str) -> None:
        """A line at the present depth."""
        self.lines.append("    " * self.indent + line)

    def loop(self, loop: Loop) -> None:
        """Begin a loop over blocks; a parallel one has its part as parameters."""
        dim = loop.dim
        if loop.kind is LoopKind.PARALLEL:
            self.start[dim], self.end[dim] = map(self.parameter, bounds(dim))
            return
        level = self._levels[dim]
        by = self.step(loop)
        start, end = f"{dim}{level}", f"{dim}{level}_end"
        first, behind = self.start[dim], self.end[dim]
        self.put(f"for {start} in range({first}, {behind}, {by}):")
        self.indent += 1
        self.put(f"{end} = min({start} + {by}, {behind})")
        if "B" not in self.packed_from and dim in (self.nest.col, self.nest.k):
            self.moves_b.append(Move(dim, start, by, first, behind))
        self.start[dim], self.end[dim] = start, end

    def step(self, loop: Loop) -> str:
        """The step of a loop, which is the next one over its dim."""
        level = self._levels[loop.dim]
        self._levels[loop.dim] += 1
        return self.parameter(step(loop.dim, level))

    def length(self, dim: str) -> str:
        """How long the current block of a dim is."""
        return f"{self.end[dim]} - {self.start[dim]}"

    def offset(
        self,
        operand: Literal["a", "b", "c", "bias", "ap"],
        dims: tuple[str, ...],
        base: dict[str, str] | None = None,
    ) -> str:
        """Sum of (start - base) * stride over the dims that the operand has."""
        terms = []
        for dim in dims:
            here, origin = self.start[dim], (base or {}).get(dim, "0")
            if here == origin:
                continue
            distance = here if origin == "0" else f"({here} - {origin})"
            terms.append(f"{distance} * {self.ensure(stride(operand, dim))}")
        return " + ".join(terms) or "0"

    def b_in_place(self, row: str | None = None) -> str:
        """Where the first row and column of B's present block lie; or another row, if given."""
        row = row or self.start[self.nest.k]
        source = self.offset("b", (*self.lead("B"), self.nest.col))
        return f"b + ({row} * b_stream + {source}) * size"

    def count(self, what: str) -> None:
        """Add to the counter of calls and packs, where somebody counts."""
        self.put(f"if {COUNT}: add_word(p, {self.parameters.index(COUNT)}, {what})")

    def read_in(self, body: str) -> dict[str, int]:
        """The parameters that the printed body of a function names, with their places.

        Every word of a body is a name or a keyword: it has no text and no comments.
        """
        words = set(_WORD.findall(body))
        return {name: place for place, name in enumerate(self.parameters) if name in words}
