"""Calls of micro-kernels that walk the tiles of a block themselves."""

from abc import ABC, abstractmethod

from tilewise.kernels.native.ir.vectors import LINE_BYTES
from tilewise.kernels.native.macrokernel.parameters import STREAMS, step, stride
from tilewise.kernels.native.macrokernel.scope import Scope
from tilewise.kernels.native.microkernels.abi import (
    FROM_WORDS,
    PAST_CACHES,
    TO_WORDS,
    DepthwiseArguments,
    SkinnyGemmArguments,
)
from tilewise.kernels.nest import Loop, Role


class WalkPrinter(ABC):
    """Prints one call for each block, and counts the tiles that the call has.

    Attributes:
        tiles: how many there are along each dim.
        part: the names of the start and the end of what lies within the loop over the reduction,
            per dim.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope, self.nest = scope, scope.nest
        self.tiles: list[str] = []
        self.part: dict[str, tuple[str, str]] = {}

    def walked(self, loop: Loop) -> None:
        """A loop over register tiles, which the micro-kernel has; images are visited alone."""
        if self.nest.dim(loop.dim).single:
            return
        by, length = self.scope.step(loop), self.scope.length(loop.dim)
        self.tiles.append(f"(({length} + {by} - 1) // {by})")

    def enter(self, loop: Loop) -> None:
        """A loop over blocks or over the reduction; what lies within that waits for a chunk."""
        if loop.dim == self.nest.k:
            start, end = self.scope.start, self.scope.end
            self.part = {dim: (start[dim], end[dim]) for dim in start}
        self.scope.loop(loop)

    def kernel(self) -> None:
        """The call."""
        which, arguments = self.call()
        self.scope.put(f"call_address({which}, {', '.join(vars(arguments).values())})")
        self.scope.count(" * ".join(self.tiles))

    @abstractmethod
    def call(self) -> tuple[str, DepthwiseArguments[str] | SkinnyGemmArguments[str]]:
        """The name of the function, and what it is given; prints what they need."""


class WindowPrinter(WalkPrinter):
    """Calls that compute lines and channels of one image."""

    def call(self) -> tuple[str, DepthwiseArguments[str]]:
        """Of a window micro-kernel."""
        scope, kernel = self.scope, "full"
        image, weights = ("a", "b") if self.nest.image == "A" else ("b", "a")
        if self.nest.store.is_nontemporal:
            kernel = "kernel"
            scope.put(f"kernel = {PAST_CACHES} if c % {LINE_BYTES} == 0 else full")
        return kernel, DepthwiseArguments(
            image=f"{image} + ({scope.offset('a' if image == 'a' else 'b', ('n',))}) * size",
            weights=weights,
            c=f"c + ({scope.offset('c', ('n',))}) * out_size",
            bias="bias",
            line=scope.start["oh"],
            line_end=scope.end["oh"],
            channel=scope.start["co"],
            channel_end=scope.end["co"],
        )


class SweepPrinter(WalkPrinter):
    """Calls that add a chunk of the reduction to all columns of a block."""

    def call(self) -> tuple[str, SkinnyGemmArguments[str]]:
        """Of a sweeping micro-kernel; the last chunk may be short, and takes another."""
        scope, nest, k_block = self.scope, self.nest, self.nest.k_block
        stream, col = nest.k, nest.col
        chunk, start, end = step(stream, 0), scope.start[stream], f"{stream}_extent"
        scope.put(f"depth = {scope.length(stream)}")
        scope.put(f"cols = {scope.length(col)}")
        scope.put(f"flags = flags_first if {start} == 0 else flags_later | {FROM_WORDS}")
        scope.put(f"if {start} + 2 * {chunk} <= {end}: flags |= {TO_WORDS}")
        scope.put(f"if {scope.end[stream]} == {end}: flags |= flags_last")
        scope.put(f"kernel = full if depth == {chunk} else edge")
        row, rows = start, chunk
        if k_block and k_block.streams > 1:
            streams = scope.ensure(STREAMS)
            scope.put(f"row = {start} // {streams} if depth == {chunk} else {start}")
            row, rows = "row", f"{chunk} // {streams}"
        lead = nest.named(Role.LEAD)
        a = scope.offset("a", (*scope.lead("A"), nest.row))
        scope.ensure(stride("b", col))
        return "kernel", SkinnyGemmArguments(
            a=f"a + ({row} * a_stream + {a}) * size",
            b=scope.b_in_place(row),
            c=f"c + ({scope.offset('c', (*lead, nest.row, col))}) * out_size",
            bias=f"bias + ({scope.offset('bias', (col,))}) * out_size",
            c_row="c_row",
            depth="depth",
            flags="flags",
            rows=scope.length(nest.row),
            cols="cols",
            wrap=f"({rows} * b_stream - cols) * size",
            sums=f"a_panels + ({self._sums_before()}) * out_size",
        )

    def _sums_before(self) -> str:
        """How many sums lie before those of the present block."""
        nest, scope = self.nest, self.scope
        before = "0"
        for dim in (*nest.named(Role.LEAD), nest.row):
            first, end = self.part[dim]
            at = f"{scope.start[dim]} - {first}" if scope.start[dim] != first else "0"
            before = at if before == "0" else f"({before}) * ({end} - {first}) + {at}"
        (first, end), here = self.part[nest.col], scope.start[nest.col]
        before = before if before == "0" else f"({before}) * ({end} - {first})"
        if here == first:
            return before
        return f"{before} + ({here} - {first}) * ({scope.length(nest.row)})"
