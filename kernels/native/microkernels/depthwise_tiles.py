"""Register tiles of depthwise and grouped convolutions, however channels and pixels are stored.

A tile has a few neighbouring lines of the result. It loads what it needs of a line of the image
once, for all its outputs that read it. The lines of the image come one after the other: those in
the padding add nothing. What a tile reads beyond the sides of the image is known when its code is
written: tiles that read alike, and follow each other, share it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

from llvmlite import ir

from tilewise.kernels.arithmetic import Arithmetic
from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import CountedLoop, branch
from tilewise.kernels.native.ir.dot_products import less_zero, multiply_add, widen, zero_at
from tilewise.kernels.native.ir.vectors import ELEMENTS, I1, I32, Value, Vectors, const
from tilewise.kernels.native.microkernels.abi import ADD_BIAS, RELU, DepthwiseArguments, ceiling_of

Readers = list[tuple[int, int]]
"""Outputs of a tile that read the same line or pixel, each with its tap."""

AddLine = Callable[[int, Readers, list[Value]], list[Value]]
"""Adds a line's products to sums, given the line's offset and who reads it."""

Weights = dict[tuple[int, int, int], Value]
"""By tap, input of a group and vector of the tile."""

Found = tuple[bool, ...]
"""For neighbouring outputs, whether the image has the pixel that each reads for one tap."""

PAIRS = 2  # the stride of which two whole vectors are loaded; from wider ones elements are gathered


@dataclass(frozen=True)
class PixelAxis:
    """One direction of the image, all in pixels.

    Attributes:
        extent: of the image, without padding.
        outputs: of the result.
        taps: of the filter.
        stride, dilation, pad: of the convolution; zeros before the first pixel.
    """

    extent: int
    outputs: int
    taps: int
    stride: int
    dilation: int
    pad: int

    def offset(self, output: int, tap: int) -> int:
        """Return where an output finds a tap, from where output 0 finds its first one."""
        return output * self.stride + tap * self.dilation

    def readers(self, outputs: int) -> dict[int, Readers]:
        """Return what the first so many outputs read: by offset, which of them for which tap."""
        found: dict[int, Readers] = {}
        for output in range(outputs):
            for tap in range(self.taps):
                found.setdefault(self.offset(output, tap), []).append((output, tap))
        return dict(sorted(found.items()))

    def exists(self, output: int, offset: int) -> bool:
        """Return whether the image has the pixel at an offset from an output's first tap."""
        return 0 <= output * self.stride - self.pad + offset < self.extent


@dataclass(frozen=True)
class DepthwiseSpec:
    """All that the code of a depthwise micro-kernel depends on.

    Attributes:
        how: the arithmetic; elements are widened as they are loaded.
        lanes, fits: elements of an accumulator vector, and whether one register holds it.
        unit: columns of C in a whole vector.
        epilogue: which of `ADD_BIAS`, `RELU` and `CEILING` every call does.
        down, across: the image's lines, and its columns.
        inputs, outputs: channels of a group.
        image_channels, channels: of the image, and of the result.
        planes: whether each channel is a plane of its own (`nchw_fchw`).
        lines, pixels, vectors: of a register tile: lines of the result, pixels of each, vectors of
            channels of each; in planes 1 pixel, and vectors of pixels.
        registers: vector registers of the target.
        cols_outside: whether the loop over columns of C is outside the one over its rows.
        past_caches: whether the result is written past the caches.
    """

    how: Arithmetic
    lanes: int
    fits: bool
    unit: int
    epilogue: int
    down: PixelAxis
    across: PixelAxis
    inputs: int
    outputs: int
    image_channels: int
    channels: int
    planes: bool
    lines: int
    pixels: int
    vectors: int
    registers: int
    cols_outside: bool
    past_caches: bool = False

    @property
    def span(self) -> int:
        """Elements of C in a vector: channels of whole groups, or pixels; those that there are."""
        return min(self.unit, self.across.outputs if self.planes else self.channels)

    @property
    def image(self) -> str:
        """The role that the image plays."""
        return "B" if self.planes else "A"

    @property
    def weights(self) -> str:
        """The role that the filter plays."""
        return "A" if self.planes else "B"

    @property
    def cols(self) -> int:
        """Columns of the register tile, in elements of C."""
        return self.vectors * self.unit

    @property
    def channel_step(self) -> int:
        """Channels that tiles have at once."""
        return 1 if self.planes else self.vectors * self.span

    @property
    def has_whole_vectors(self) -> bool:
        """Whether every vector of the result is at a multiple of its size, if the first is."""
        row = self.across.outputs if self.planes else self.channels
        return self.span == self.lanes and row % self.lanes == 0

    @property
    def taps(self) -> int:
        """Of the filter."""
        return self.down.taps * self.across.taps

    @property
    def sums(self) -> int:
        """Accumulators of a register tile."""
        return self.lines * self.pixels * self.vectors

    def steps(self, multiply_adds: int) -> int:
        """Return the taps that so many vector multiply-adds take."""
        return multiply_adds // self.sums


@dataclass(frozen=True)
class Run:
    """Tiles of a line that follow each other and read alike.

    Attributes:
        first, count, step: the first output, the number of tiles, outputs from one to the next.
        starts: the first output of each of a tile's units, which are single outputs or those of a
            vector, from the tile's first output on.
        found: for each unit and tap.
    """

    first: int
    count: int
    step: int
    starts: tuple[int, ...]
    found: tuple[tuple[Found, ...], ...]

    def followed_by(self, tile: "Run") -> "Run | None":
        """Return the run with one more tile; None where that does not follow it or reads else."""
        step = tile.first - (self.first + (self.count - 1) * self.step)
        is_alike = (self.starts, self.found) == (tile.starts, tile.found)
        if not is_alike or self.step not in (0, step):
            return None
        return replace(self, count=self.count + 1, step=step)


def runs(axis: PixelAxis, unit: int, units: int) -> list[Run]:
    """Return the tiles of a line, each of `units` units of `unit` outputs.

    A tile that would reach beyond the line is moved back: some outputs are then computed twice, the
    same each time. A line of fewer units has one tile of them.
    """
    starts = list(range(0, axis.outputs - unit + 1, unit))
    if axis.outputs % unit:
        starts.append(axis.outputs - unit)
    made: list[Run] = []
    for at in range(0, len(starts), units):
        tile = starts[at : at + units]
        if len(tile) < units <= len(starts):
            tile = starts[-units:]
        found = tuple(
            tuple(
                tuple(axis.exists(start + output, tap * axis.dilation) for output in range(unit))
                for tap in range(axis.taps)
            )
            for start in tile
        )
        one = Run(tile[0], 1, 0, tuple(start - tile[0] for start in tile), found)
        longer = made[-1].followed_by(one) if made else None
        made = [*made[:-1], longer] if longer else [*made, one]
    return made


@dataclass(frozen=True)
class TilePlace:
    """Where a tile is.

    Attributes:
        line, column, channel: of its first output.
        lines_found: whether the image has each line that it reads, by the offset from the first;
            None where it has them all.
    """

    line: Value
    column: Value
    channel: Value
    lines_found: dict[int, Value] | None


class DepthwiseTile(ABC):
    """Emits tiles into one function."""

    def __init__(
        self, builder: Builder, spec: DepthwiseSpec, arg: DepthwiseArguments[Value]
    ) -> None:
        self.builder, self.spec, self.arg = builder, spec, arg
        element = ELEMENTS[spec.how.accumulator]
        self.v = Vectors(builder, element, spec.lanes, fits=spec.fits)
        self.stored = Vectors(builder, ELEMENTS[spec.how.stored], spec.lanes)
        self.zeros = {
            role: zero_at(builder, arg.image_zero if role == spec.image else arg.weights_zero)
            for role in spec.how.zero
        }

    @abstractmethod
    def runs(self) -> list[Run]:
        """Return the tiles of a line."""

    @abstractmethod
    def held_weights(self, channel: Value) -> Weights:
        """Return the filter of a tile's channels; empty where registers do not hold it."""

    @abstractmethod
    def emit(self, run: Run, place: TilePlace, held: Weights) -> None:
        """Emit one tile, from what its sums start from to the store."""

    @abstractmethod
    def bias(self, width: int, at: Value) -> list[Value]:
        """Return what is added to each of a line's vectors; `at` is that of the first channel."""

    def by_lines(self, place: TilePlace, sums: list[Value], add: AddLine) -> list[Value]:
        """Return the sums plus the products of every line that the image has."""
        for offset, readers in self.spec.down.readers(self.spec.lines).items():
            added = partial(add, offset, readers)
            if place.lines_found is None:
                sums = added(sums)
            else:
                sums = branch(self.builder, place.lines_found[offset], added, sums)
        return sums

    def start(self, width: int, place: TilePlace) -> list[Value]:
        """Return what the sums of a tile start from, with so many vectors in each of its lines."""
        if not self.spec.epilogue & ADD_BIAS:
            return [self.v.zero] * (width * self.spec.lines)
        return self.bias(width, self.v.offset(self.arg.bias, place.channel)) * self.spec.lines

    def store(self, sums: list[Value], places: Sequence[Value]) -> None:
        """Apply relu if the epilogue has it, and store."""
        mask, ceiling = self.span_mask, ceiling_of(self.spec.epilogue)
        for value, at in zip(sums, places, strict=True):
            done = self.v.relu(value, ceiling) if self.spec.epilogue & RELU else value
            if self.spec.past_caches:
                self.v.store_past_caches(done, at)
            else:
                self.v.store(done, at, mask)

    def load(self, role: str, address: Value, found: Sequence[bool]) -> Value:
        """Return a vector of A or B as it is multiplied; lanes not found are zero, untouched."""
        mask = None if all(found) else lanes_mask(found)
        return self.widened(role, self.stored.load(address, mask), mask)

    def splat(self, address: Value) -> Value:
        """Return one element of the filter in every lane, as it is multiplied."""
        return self.widened(self.spec.weights, self.stored.load_splat(address))

    def widened(self, role: str, elements: Value, mask: Value | None = None) -> Value:
        """Return stored elements as they are multiplied; lanes off in `mask` are zero."""
        b, how = self.builder, self.spec.how
        wide = widen(b, elements, how.stored_as(role), how.accumulator)
        return less_zero(b, wide, self.zeros.get(role), mask)

    @property
    def span_mask(self) -> Value | None:
        """The mask of the lanes of a vector that are elements of C; None for all."""
        spec = self.spec
        on = [lane < spec.span for lane in range(spec.lanes)]
        return None if all(on) else lanes_mask(on)

    def group_of(self, channel: Value) -> Value:
        """Return the group of a channel of the result."""
        outputs = self.spec.outputs
        return self.builder.sdiv(channel, const(outputs)) if outputs > 1 else channel

    def moved(self, v: Vectors, address: Value, *moves: tuple[Value, int]) -> Value:
        """Return an address moved by so many steps of so many elements each."""
        for steps, elements in moves:
            address = v.offset(address, self.builder.mul(steps, const(elements)))
        return address


def lanes_mask(on: Sequence[bool]) -> Value:
    """Return a constant mask."""
    return ir.Constant(ir.VectorType(I1, len(on)), [int(each) for each in on])


class PixelTile(DepthwiseTile):
    """Emits tiles of pixels, each with a few vectors of channels, which are neighbours (`nhwc`).

        C[line, pixel, channels] =
            sum over taps, j of A[pixel at tap, j-th of each group] * B[tap, j]

    A vector holds the channels of whole groups. The image's channels for it are loaded together;
    where a group has several, a permutation gives each lane the j-th of its own group. A pixel of
    the image is loaded once for all outputs of the tile that read it.
    """

    def __init__(
        self, builder: Builder, spec: DepthwiseSpec, arg: DepthwiseArguments[Value]
    ) -> None:
        super().__init__(builder, spec, arg)
        groups = [min(lane, spec.span - 1) // spec.outputs for lane in range(spec.lanes)]
        self._needed = spec.span // spec.outputs * spec.inputs
        """Neighbouring channels of the image that a vector's lanes need."""
        self._orders = [[group * spec.inputs + j for group in groups] for j in range(spec.inputs)]
        """For each input of a group, the channel that each lane takes."""

    def runs(self) -> list[Run]:
        """Return tiles of neighbouring pixels."""
        return runs(self.spec.across, 1, min(self.spec.pixels, self.spec.across.outputs))

    def held_weights(self, channel: Value) -> Weights:
        """Return the filter of a tile's channels, if registers hold it and the sums."""
        spec = self.spec
        count = spec.taps * spec.inputs * spec.vectors
        if count + spec.sums + spec.inputs > spec.registers:
            return {}
        keys = product(range(spec.taps), range(spec.inputs), range(spec.vectors))
        return {key: self._weight(channel, *key) for key in keys}

    def emit(self, run: Run, place: TilePlace, held: Weights) -> None:
        """Emit one tile: pixels of a line, then lines."""
        spec, pixels = self.spec, len(run.starts)
        image = self._image_at(place)

        def add(offset: int, lines: Readers, sums: list[Value]) -> list[Value]:
            out = list(sums)
            for at, users in spec.across.readers(pixels).items():
                first, first_tap = users[0]
                if not run.found[first][first_tap][0]:
                    continue
                for vector in range(spec.vectors):
                    read = enumerate(self._image(image, offset, at, vector))
                    for (line, down), (pixel, across), (j, factor) in product(lines, users, read):
                        to = (line * pixels + pixel) * spec.vectors + vector
                        key = (down * spec.across.taps + across, j, vector)
                        weight = held[key] if held else self._weight(place.channel, *key)
                        one = spec.how.instruction
                        out[to] = multiply_add(self.v, one, factor, weight, out[to])
            return out

        sums = self.by_lines(place, self.start(pixels * spec.vectors, place), add)
        self.store(sums, self._outputs(place, pixels))

    def bias(self, width: int, at: Value) -> list[Value]:
        """Return a vector of channels for each vector of a pixel, the same for all pixels."""
        mask, vectors = self.span_mask, range(self.spec.vectors)
        row = [self.v.load(self.v.at(at, vector * self.spec.span), mask) for vector in vectors]
        return row * (width // self.spec.vectors)

    def _image_at(self, place: TilePlace) -> Value:
        """The first tap of the tile's first output, at its first channel."""
        spec = self.spec
        pixel, line, column = spec.image_channels, spec.down, spec.across
        group = self.group_of(place.channel)
        at = self.moved(
            self.stored,
            self.arg.image,
            (place.line, line.stride * column.extent * pixel),
            (place.column, column.stride * pixel),
            (group, spec.inputs),
        )
        return self.stored.at(at, -(line.pad * column.extent + column.pad) * pixel)

    def _image(self, at: Value, line: int, pixel: int, vector: int) -> list[Value]:
        """For each input of a group, the vector of the channels that lanes multiply."""
        spec = self.spec
        channel = vector * spec.span // spec.outputs * spec.inputs
        first = (line * spec.across.extent + pixel) * spec.image_channels + channel
        loaded = [
            self.load(
                spec.image,
                self.stored.at(at, first + begin),
                [begin + lane < self._needed for lane in range(spec.lanes)],
            )
            for begin in range(0, self._needed, spec.lanes)
        ]
        return [self._ordered(loaded, order) for order in self._orders]

    def _ordered(self, loaded: list[Value], order: list[int]) -> Value:
        """The elements of several vectors that `order` names."""
        lanes, b = self.spec.lanes, self.builder
        if order == list(range(lanes)):
            return loaded[0]
        first, *others = loaded
        index = ir.VectorType(I32, lanes)
        result = b.shuffle_vector(first, first, ir.Constant(index, [o % lanes for o in order]))
        for i, other in enumerate(others, start=1):
            chosen = [
                lanes + o % lanes if o // lanes == i else lane for lane, o in enumerate(order)
            ]
            result = b.shuffle_vector(result, other, ir.Constant(index, chosen))
        return result

    def _weight(self, channel: Value, tap: int, j: int, vector: int) -> Value:
        spec = self.spec
        at = self.stored.offset(self.arg.weights, channel)
        at = self.stored.at(at, (tap * spec.inputs + j) * spec.channels + vector * spec.span)
        return self.load(spec.weights, at, [lane < spec.span for lane in range(spec.lanes)])

    def _outputs(self, place: TilePlace, pixels: int) -> list[Value]:
        spec = self.spec
        width = spec.across.outputs * spec.channels
        at = self.moved(self.v, self.arg.c, (place.line, width), (place.column, spec.channels))
        at = self.v.offset(at, place.channel)
        return [
            self.v.at(at, line * width + pixel * spec.channels + vector * spec.span)
            for line, pixel, vector in product(
                range(spec.lines), range(pixels), range(spec.vectors)
            )
        ]


class PlaneTile(DepthwiseTile):
    """Emits tiles of a few vectors of one channel's lines, of which each is a plane (`nchw`).

        C[line, pixels] = sum over j, taps of A[j, pixels at tap] * B[j, tap]

    Neighbouring outputs are the lanes, and a tap of the filter is the same for all of them. What is
    beyond the sides of the image is masked out.
    """

    def runs(self) -> list[Run]:
        """Return tiles of neighbouring vectors."""
        return runs(self.spec.across, self.spec.span, self.spec.vectors)

    def held_weights(self, channel: Value) -> Weights:
        """Return the filter of a channel, if registers hold it and the sums."""
        spec = self.spec
        if spec.inputs > 1 or spec.taps + spec.sums + 1 > spec.registers:
            return {}
        at = self._weights_at(channel)
        return {(tap, 0, 0): self.splat(self.stored.at(at, tap)) for tap in range(spec.taps)}

    def emit(self, run: Run, place: TilePlace, held: Weights) -> None:
        """Emit one tile: every input of the group, line by line."""
        spec, b = self.spec, self.builder
        sums = self.start(len(run.starts), place)
        image, weights = self._image_at(place), self._weights_at(place.channel)
        if spec.inputs == 1:
            sums = self.by_lines(place, sums, partial(self._add, run, image, weights, held))
        else:
            loop = CountedLoop(b, sums, "input")
            plane = spec.down.extent * spec.across.extent
            at = self.moved(self.stored, image, (loop.index, plane))
            of = self.moved(self.stored, weights, (loop.index, spec.taps))
            sums = self.by_lines(place, loop.carried, partial(self._add, run, at, of, {}))
            sums = loop.close(sums, const(spec.inputs), 1)
        self.store(sums, self._outputs(run, place))

    def _add(
        self,
        run: Run,
        image: Value,
        weights: Value,
        held: Weights,
        offset: int,
        lines: Readers,
        sums: list[Value],
    ) -> list[Value]:
        """The sums plus the products of one line of the image."""
        across, out, wide = self.spec.across, list(sums), len(run.starts)
        for vector, start in enumerate(run.starts):
            for tap_col in range(across.taps):
                found = run.found[vector][tap_col]
                if not any(found):
                    continue
                first = offset * across.extent + across.offset(start, tap_col)
                read = self._pixels(self.stored.at(image, first), found)
                for line, tap_row in lines:
                    tap = tap_row * across.taps + tap_col
                    weight = held[tap, 0, 0] if held else self.splat(self.stored.at(weights, tap))
                    at = line * wide + vector
                    out[at] = multiply_add(self.v, self.spec.how.instruction, read, weight, out[at])
        return out

    def _pixels(self, at: Value, found: Found) -> Value:
        """A vector of pixels that are a stride apart."""
        stride, lanes = self.spec.across.stride, self.spec.lanes
        on = [*found, *[False] * (lanes - len(found))]
        image = self.spec.image
        if stride == 1:
            return self.load(image, at, on)
        if stride > PAIRS:
            mask = lanes_mask(on)
            return self.widened(image, self.stored.gather(at, stride, mask), mask)
        spread = [each for pixel in on for each in (pixel, False)]
        low = self.load(image, at, spread[:lanes])
        high = self.load(image, self.stored.at(at, lanes), spread[lanes:])
        even = ir.Constant(ir.VectorType(I32, lanes), [PAIRS * lane for lane in range(lanes)])
        return self.builder.shuffle_vector(low, high, even)

    def bias(self, width: int, at: Value) -> list[Value]:
        """Return the channel's one value, for each vector."""
        return [self.v.load_splat(at)] * width

    def _image_at(self, place: TilePlace) -> Value:
        """The first tap of the tile's first output, in the first plane of its group."""
        spec = self.spec
        down, across = spec.down, spec.across
        at = self.moved(
            self.stored,
            self.arg.image,
            (self.group_of(place.channel), spec.inputs * down.extent * across.extent),
            (place.line, down.stride * across.extent),
            (place.column, across.stride),
        )
        return self.stored.at(at, -(down.pad * across.extent + across.pad))

    def _weights_at(self, channel: Value) -> Value:
        size = self.spec.inputs * self.spec.taps
        return self.moved(self.stored, self.arg.weights, (channel, size))

    def _outputs(self, run: Run, place: TilePlace) -> list[Value]:
        spec = self.spec
        width = spec.across.outputs
        at = self.moved(
            self.v,
            self.arg.c,
            (place.channel, spec.down.outputs * width),
            (place.line, width),
            (place.column, 1),
        )
        lines = range(spec.lines)
        return [self.v.at(at, line * width + start) for line, start in product(lines, run.starts)]
