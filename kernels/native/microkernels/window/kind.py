"""The micro-kernel of convolutions with few channels in a group, such as depthwise ones.

    C[y, x, f] = relu?( bias? + sum over taps, j of A[y at tap, x at tap, j-th of f's group] * B )

Each output sums few products, and no two channels of the result share a factor of the image: an
outer product would have a single column. Here the lanes of a vector are neighbours in memory, be
they channels or pixels, and a register tile is a window of the image that slides: neighbouring
outputs share what they read (Zhang, Franchetti and Low, High Performance Zero-Memory Overhead
Direct Convolutions, ICML 2018, on blocking direct convolutions for registers).

One call walks lines and channels of one image, whole lines each, so that the work of a call hides
what it costs. The image is read in place, padding is never read, and nothing is packed.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from llvmlite import ir

from tilewise.kernels.arithmetic import Arithmetic
from tilewise.kernels.instructions import Form
from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import Loop, branch
from tilewise.kernels.native.ir.vectors import Value, const, internal_function
from tilewise.kernels.native.microkernels.abi import PAST_CACHES, WINDOW_ARGUMENTS, WindowArguments
from tilewise.kernels.native.microkernels.specs import Piece
from tilewise.kernels.native.microkernels.use import ANYHOW, Use
from tilewise.kernels.native.microkernels.window.pixels import PixelTile
from tilewise.kernels.native.microkernels.window.planes import PlaneTile
from tilewise.kernels.native.microkernels.window.runs import Run
from tilewise.kernels.native.microkernels.window.spec import WindowSpec, window_spec
from tilewise.kernels.native.microkernels.window.tile import Place, WindowTile
from tilewise.kernels.native.strides import Strides
from tilewise.kernels.nest import Nest
from tilewise.kernels.target.model import Target


@dataclass(frozen=True)
class Window:
    """The micro-kernel of a problem with few channels in a group.

    Attributes:
        spec: what its code depends on.
        writes_past_caches: whether the result goes past the caches where it lies aligned.
    """

    spec: WindowSpec
    writes_past_caches: bool

    form: ClassVar[Form] = Form.DEPTHWISE

    @classmethod
    def serves(cls, nest: Nest) -> bool:
        """Return whether columns span groups, or are pixels of one channel."""
        return nest.group > 0

    @classmethod
    def of(cls, nest: Nest, target: Target, strides: Strides, how: Arithmetic) -> Self:
        """Return the one that a nest asks for; LoweringError for what the target has not."""
        return cls(window_spec(nest, target, how), nest.store.is_nontemporal)

    def pieces(self, use: Use = ANYHOW) -> dict[str, Piece]:
        """Its function, and the one that writes past the caches."""
        specs = {"full": self.spec}
        if self.writes_past_caches:
            specs[PAST_CACHES] = replace(self.spec, past_caches=True)
        return {
            name: Piece("window", (spec, name), emit_window, is_as_written=True)
            for name, spec in specs.items()
        }


def emit_window(module: ir.Module, spec: WindowSpec, name: str = "full") -> ir.Function:
    """Add the micro-kernel to `module`."""
    fn = internal_function(module, f"tilewise_kernel_{name}", len(WINDOW_ARGUMENTS))
    _Walk(fn, spec).emit()
    return fn


class _Walk:
    """Emits the loops over channels, lines and tiles of a line, in the register step's order."""

    def __init__(self, fn: ir.Function, spec: WindowSpec) -> None:
        self.builder = Builder(fn.append_basic_block("entry"))
        self.spec = spec
        self.arg: WindowArguments[Value] = WindowArguments(*fn.args)
        self.tile: WindowTile[Any] = (PlaneTile if spec.planes else PixelTile)(
            self.builder, spec, self.arg
        )

    def emit(self) -> None:
        """The whole function."""
        if self.spec.planes and self.spec.cols_outside:
            self._columns(
                lambda run, x: self._channels(lambda c, held: self._down(run, x, c, held))
            )
        elif self.spec.planes or self.spec.cols_outside:
            self._channels(self._lines_of)
        else:
            self._lines(
                lambda line, found: self._columns(
                    lambda run, x: self._channels(
                        lambda c, _: self.tile.emit(run, Place(line, x, c, found), None),
                        holds=False,
                    )
                )
            )
        if self.spec.past_caches:
            self.tile.v.wait_for_stores()
        self.builder.ret_void()

    def _lines_of(self, channel: Value, held: Any) -> None:
        """All tiles of some channels, line by line."""
        self._lines(
            lambda line, found: self._columns(
                lambda run, x: self.tile.emit(run, Place(line, x, channel, found), held)
            )
        )

    def _down(self, run: Run, column: Value, channel: Value, held: Any) -> None:
        """The tiles at one column of a channel, from line to line."""
        self._lines(
            lambda line, found: self.tile.emit(run, Place(line, column, channel, found), held)
        )

    # Loops

    def _channels(self, body: Callable[[Value, Any], None], holds: bool = True) -> None:
        """Over the channels of a call; the last vectors of channels are moved back to end there."""
        b, arg, step = self.builder, self.arg, self.spec.channel_step
        loop = Loop(b, (), "channel")
        channel = self._at_most(b.add(arg.channel, loop.index), b.sub(arg.channel_end, const(step)))
        body(channel, self.tile.held_weights(channel) if holds else None)
        loop.close((), b.sub(arg.channel_end, arg.channel), step)

    def _lines(self, body: Callable[[Value, dict[int, Value] | None], None]) -> None:
        """Over the lines of a call; tiles whose lines are all in the image have no tests."""
        b, arg, spec = self.builder, self.arg, self.spec
        loop = Loop(b, (), "line")
        last = const(spec.down.outputs - spec.lines)
        line = self._at_most(b.add(arg.line, loop.index), last)
        found = self._lines_found(line)

        def whole(nothing: list[Value]) -> list[Value]:
            body(line, None)
            return nothing

        def tested(nothing: list[Value]) -> list[Value]:
            body(line, found)
            return nothing

        if found:
            inside = functools.reduce(b.and_, found.values())
            branch(b, inside, whole, [], tested)
        else:
            whole([])
        loop.close((), b.sub(arg.line_end, arg.line), spec.lines)

    def _lines_found(self, line: Value) -> dict[int, Value]:
        """By offset whether the image has the line; empty where it has every one."""
        b, down = self.builder, self.spec.down
        ends = (0, down.outputs - self.spec.lines)
        offsets = down.readers(self.spec.lines)
        if all(down.exists(end, offset) for end in ends for offset in offsets):
            return {}
        first = b.mul(line, const(down.stride))
        lines = {offset: b.add(first, const(offset - down.pad)) for offset in offsets}
        return {
            offset: b.and_(
                b.icmp_signed(">=", at, const(0)), b.icmp_signed("<", at, const(down.extent))
            )
            for offset, at in lines.items()
        }

    def _columns(self, body: Callable[[Run, Value], None]) -> None:
        """Over the tiles of a line."""
        for run in self.tile.runs():
            if run.count == 1:
                body(run, const(run.first))
                continue
            loop = Loop(self.builder, (), "column")
            body(run, self.builder.add(const(run.first), loop.index))
            loop.close((), const(run.count * run.step), run.step)

    def _at_most(self, value: Value, most: Value) -> Value:
        b = self.builder
        return b.select(b.icmp_signed("<", value, most), value, most)
