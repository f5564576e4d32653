"""Prints nests whose micro-kernels loop over the tiles of a block themselves: a call per block."""

from abc import abstractmethod
from typing import Literal

from tilewise.kernels.arithmetic import Arithmetic
from tilewise.kernels.native.ir.vectors import LINE_BYTES
from tilewise.kernels.native.macrokernel.nest_printer import NestPrinter
from tilewise.kernels.native.macrokernel.parameters import STREAMS, extent, step
from tilewise.kernels.native.microkernels.abi import (
    FROM_WORDS,
    PAST_CACHES,
    TO_WORDS,
    DepthwiseArguments,
    SkinnyGemmArguments,
)
from tilewise.kernels.nest import Loop, LoopKind, Nest, Role


class BlockPrinter(NestPrinter):
    """Prints one call for each block, and counts the tiles of the call.

    Attributes:
        tiles: how many there are along each dim.
        part: the names of the start and the end of the block around the loop over the reduction,
            per dim.
    """

    def __init__(self, nest: Nest, how: Arithmetic) -> None:
        super().__init__(nest, how)
        self.tiles: list[str] = []
        self.part: dict[str, tuple[str, str]] = {}

    def loop(self, loop: Loop) -> None:
        """Begin a loop over blocks or chunks; loops over tiles are the micro-kernel's."""
        if loop.kind is not LoopKind.MICRO:
            if loop.dim == self.nest.k:
                self.part = {dim: (self.start[dim], self.end[dim]) for dim in self.start}
            super().loop(loop)
        elif not self.nest.dim(loop.dim).single:  # images are visited alone
            by = self.step(loop)
            self.tiles.append(f"(({self.length(loop.dim)} + {by} - 1) // {by})")

    def compute(self) -> None:
        """Print the call."""
        which, arguments = self.call()
        self.put(f"call_address({which}, {', '.join(vars(arguments).values())})")
        self.after(arguments.c)
        self.count("micro_kernels", " * ".join(self.tiles))

    @abstractmethod
    def after(self, sums: str) -> None:
        """Print that C is made of the call's sums, at this address, where they lie apart."""

    @abstractmethod
    def call(self) -> tuple[str, DepthwiseArguments[str] | SkinnyGemmArguments[str]]:
        """Print what the call needs; return the name of the function, and its arguments."""


class DepthwisePrinter(BlockPrinter):
    """Prints calls that compute lines and channels of one image of a depthwise convolution."""

    def call(self) -> tuple[str, DepthwiseArguments[str]]:
        """Print the choice of the micro-kernel; return it and its arguments."""
        kernel = "full"
        image: Literal["a", "b"] = "a" if self.nest.image == "A" else "b"
        if self.nest.store.is_nontemporal:
            kernel = "kernel"
            self.put(f"kernel = {PAST_CACHES} if c % {LINE_BYTES} == 0 else full")
        return kernel, DepthwiseArguments(
            image=f"{image} + ({self.offset(image, ('n',))}) * size",
            weights="b" if image == "a" else "a",
            c=self.sums(("n",)),
            bias="bias",
            line=self.start["oh"],
            line_end=self.end["oh"],
            channel=self.start["co"],
            channel_end=self.end["co"],
            image_zero=self.zero(self.nest.image),
            weights_zero=self.zero("B" if image == "a" else "A"),
        )

    def after(self, sums: str) -> None:
        """Print what makes C: of pixels by channels, or of channels by pixels."""
        line, channel = self.start["oh"], self.start["co"]
        pixels, channels = f"({self.length('oh')}) * out_width", self.length("co")
        rows, cols = (pixels, channels) if self.nest.image == "A" else (channels, pixels)
        before = (
            f"{line} * out_width * c_row + {channel}"
            if self.nest.image == "A"
            else f"{channel} * c_row + {line} * out_width"
        )
        self.finish_block(("n",), f"{sums} + ({before}) * out_size", rows, cols, channel, before)


class SkinnyPrinter(BlockPrinter):
    """Prints calls of a skinny GEMM, which add a chunk of the reduction to a block's columns."""

    def call(self) -> tuple[str, SkinnyGemmArguments[str]]:
        """Print what a chunk is; the last one may be short, and takes another micro-kernel."""
        nest, k, col = self.nest, self.nest.k, self.nest.col
        chunk, start, end = step(k, 0), self.start[k], extent(k)
        self.put(f"depth = {self.length(k)}")
        self.put(f"cols = {self.length(col)}")
        self.put(f"flags = flags_first if {start} == 0 else flags_later | {FROM_WORDS}")
        self.put(f"if {start} + 2 * {chunk} <= {end}: flags |= {TO_WORDS}")
        self.put(f"if {self.end[k]} == {end}: flags |= flags_last")
        self.put(f"kernel = full if depth == {chunk} else edge")
        row, rows = start, chunk
        if nest.k_block and nest.k_block.streams > 1:
            self.put(f"row = {start} // {STREAMS} if depth == {chunk} else {start}")
            row, rows = "row", f"{chunk} // {STREAMS}"
        a = self.offset("a", (*self.lead("A"), nest.row))
        return "kernel", SkinnyGemmArguments(
            a=f"a + ({row} * a_stream + {a}) * size",
            b=self.b_in_place(row),
            c=self.sums(self._of_c),
            bias=f"bias + ({self.offset('bias', (col,))}) * out_size",
            c_row=self.sums_row,
            depth="depth",
            flags="flags",
            rows=self.length(nest.row),
            cols="cols",
            wrap=f"({rows} * b_stream - cols) * size",
            sums=f"a_panels + ({self._sums_before()}) * out_size",
        )

    @property
    def _of_c(self) -> tuple[str, ...]:
        return (*self.nest.named(Role.LEAD), self.nest.row, self.nest.col)

    def after(self, sums: str) -> None:
        """Print what makes C of the block, after the last chunk."""
        channel = self.offset("bias", (self.nest.col,))
        self.finish_block(self._of_c, sums, self.length(self.nest.row), "cols", channel)

    def _sums_before(self) -> str:
        """Return how many sums precede those of the present block."""
        nest, before = self.nest, "0"
        for dim in (*nest.named(Role.LEAD), nest.row):
            first, end = self.part[dim]
            at = f"{self.start[dim]} - {first}" if self.start[dim] != first else "0"
            before = at if before == "0" else f"({before}) * ({end} - {first}) + {at}"
        (first, end), here = self.part[nest.col], self.start[nest.col]
        before = before if before == "0" else f"({before}) * ({end} - {first})"
        if here == first:
            return before
        return f"{before} + ({here} - {first}) * ({self.length(nest.row)})"
