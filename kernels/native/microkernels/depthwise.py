"""The micro-kernel of convolutions with few channels in a group, such as depthwise ones.

    C[y, x, f] = relu?( bias? + sum over taps, j of A[y at tap, x at tap, j-th of f's group] * B )

Each output sums few products, and no two channels of the result share a factor of the image: an
outer product would have a single column. Here the lanes of a vector are neighbours in memory, be
they channels or pixels, and a register tile is a window of the image that slides: neighbouring
outputs share what they read (Zhang, Franchetti and Low, High Performance Zero-Memory Overhead
Direct Convolutions, ICML 2018, on blocking direct convolutions for registers).

One call computes lines and channels of one image, whole lines each, so that the work of a call
hides what it costs. The image is read in place, padding is never read, and nothing is packed.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from llvmlite import ir

from tilewise.kernels.arithmetic import Arithmetic, depthwise_vector
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.instructions import Form
from tilewise.kernels.native.ir.control import CountedLoop
from tilewise.kernels.native.ir.vectors import Value, const
from tilewise.kernels.native.microkernels.abi import PAST_CACHES, DepthwiseArguments, epilogue_flags
from tilewise.kernels.native.microkernels.building_blocks import (
    begin_kernel,
    check_nontemporal,
    run_if,
)
from tilewise.kernels.native.microkernels.depthwise_tiles import (
    DepthwiseSpec,
    DepthwiseTile,
    PixelAxis,
    PixelTile,
    PlaneTile,
    Run,
    TilePlace,
    Weights,
)
from tilewise.kernels.native.microkernels.microkernel import ANY_USE, Piece, Use
from tilewise.kernels.native.strides import Strides
from tilewise.kernels.nest import LoopKind, Nest
from tilewise.kernels.problem import Conv2d
from tilewise.kernels.target.model import Target


@dataclass(frozen=True)
class Depthwise:
    """The micro-kernel of a problem with few channels in a group.

    Attributes:
        spec: what its code depends on.
        writes_past_caches: whether the result is stored past the caches where it is aligned.
    """

    spec: DepthwiseSpec
    writes_past_caches: bool

    form: ClassVar[Form] = Form.DEPTHWISE

    @classmethod
    def serves(cls, nest: Nest) -> bool:
        """Return whether columns span groups, or are pixels of one channel."""
        return nest.group > 0

    @classmethod
    def of(cls, nest: Nest, target: Target, strides: Strides, how: Arithmetic) -> Self:
        """Return the one for a nest.

        Raises:
            LoweringError: the register columns are not whole vectors of the target, or the result
                is to be written past the caches and has vectors that are not whole.
        """
        problem, tile = nest.problem, nest.tile
        assert isinstance(problem, Conv2d)
        down, across = zip(problem.strides, problem.dilations, problem.pads.low, strict=True)
        planes = problem.has_channels_first
        vector = depthwise_vector(problem, target)
        vectors, rest = divmod(tile.cols, vector.columns)
        if rest:
            raise LoweringError(
                f"step register: cols={tile.cols} is not a multiple of the {vector.columns} "
                f"{problem.element.name} elements that a vector of {target.cpu} holds here"
            )
        if not planes:  # the last vectors are moved back, to end at the last channel
            vectors = min(vectors, max(1, problem.co // vector.columns))
        spec = DepthwiseSpec(
            how=how,
            lanes=vector.lanes,
            fits=vector.lanes <= target.lanes(problem.element.name),
            unit=vector.columns,
            epilogue=epilogue_flags(nest.store),
            down=PixelAxis(problem.h, problem.oh, problem.kh, *down),
            across=PixelAxis(problem.w, problem.ow, problem.kw, *across),
            inputs=problem.ci // problem.groups,
            outputs=problem.co // problem.groups,
            image_channels=problem.ci,
            channels=problem.co,
            planes=planes,
            lines=tile.rows if planes else tile.lines,
            pixels=1 if planes else tile.rows,
            vectors=vectors,
            registers=target.vector_registers,
            cols_outside=nest.loops_of(LoopKind.MICRO)[0].dim == nest.col,
        )
        check_nontemporal(nest, spec.lanes, is_whole=spec.has_whole_vectors)
        return cls(spec, nest.store.is_nontemporal)

    def pieces(self, use: Use = ANY_USE) -> dict[str, Piece]:
        """Return its function, and the one that writes past the caches."""
        specs = {"full": self.spec}
        if self.writes_past_caches:
            specs[PAST_CACHES] = replace(self.spec, past_caches=True)
        return {
            name: Piece("window", (spec, name), emit_depthwise, is_as_written=True)
            for name, spec in specs.items()
        }


def emit_depthwise(module: ir.Module, spec: DepthwiseSpec, name: str = "full") -> ir.Function:
    """Add the micro-kernel to `module`."""
    fn, builder, arg = begin_kernel(module, name, DepthwiseArguments)
    _Loops((PlaneTile if spec.planes else PixelTile)(builder, spec, arg)).emit()
    builder.ret_void()
    return fn


class _Loops:
    """Emits the loops over channels, lines and tiles of a line, in the register step's order."""

    def __init__(self, tile: DepthwiseTile) -> None:
        self.tile, self.builder, self.spec, self.arg = tile, tile.builder, tile.spec, tile.arg

    def emit(self) -> None:
        """Emit all loops."""
        tile = self.tile
        if self.spec.planes and self.spec.cols_outside:
            self._columns(
                lambda run, x: self._channels(
                    lambda c, held: self._lines(
                        lambda line, found: tile.emit(run, TilePlace(line, x, c, found), held)
                    )
                )
            )
        elif self.spec.planes or self.spec.cols_outside:
            self._channels(
                lambda c, held: self._lines(
                    lambda line, found: self._columns(
                        lambda run, x: tile.emit(run, TilePlace(line, x, c, found), held)
                    )
                )
            )
        else:
            self._lines(
                lambda line, found: self._columns(
                    lambda run, x: self._channels(
                        lambda c, held: tile.emit(run, TilePlace(line, x, c, found), held),
                        holds=False,
                    )
                )
            )
        if self.spec.past_caches:
            tile.v.wait_for_stores()

    def _channels(self, body: Callable[[Value, Weights], None], holds: bool = True) -> None:
        """Over the channels of a call; the last vectors of channels are moved back to end there."""
        b, arg, step = self.builder, self.arg, self.spec.channel_step
        loop = CountedLoop(b, (), "channel")
        channel = self._at_most(b.add(arg.channel, loop.index), b.sub(arg.channel_end, const(step)))
        body(channel, self.tile.held_weights(channel) if holds else {})
        loop.close((), b.sub(arg.channel_end, arg.channel), step)

    def _lines(self, body: Callable[[Value, dict[int, Value] | None], None]) -> None:
        """Over the lines of a call; tiles whose lines are all in the image have no tests."""
        b, arg, spec = self.builder, self.arg, self.spec
        loop = CountedLoop(b, (), "line")
        last = const(spec.down.outputs - spec.lines)
        line = self._at_most(b.add(arg.line, loop.index), last)
        found = self._lines_found(line)
        if found:
            inside = functools.reduce(b.and_, found.values())
            run_if(b, inside, lambda: body(line, None), lambda: body(line, found))
        else:
            body(line, None)
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
            loop = CountedLoop(self.builder, (), "column")
            body(run, self.builder.add(const(run.first), loop.index))
            loop.close((), const(run.count * run.step), run.step)

    def _at_most(self, value: Value, most: Value) -> Value:
        b = self.builder
        return b.select(b.icmp_signed("<", value, most), value, most)
