"""Register tiles where channels are neighbours (`nhwc_hwcf`): vectors of channels, at each pixel.

    C[line, pixel, channels] = sum over taps, j of A[pixel at tap, j-th of each group] * B[tap, j]

A vector holds the channels of whole groups. The image's channels for it are loaded together; where
a group has several, a permutation gives each lane the j-th of its own group. A pixel of the image
is loaded once for all outputs of the tile that read it.
"""

from dataclasses import dataclass

from llvmlite import ir

from tilewise.kernels.native.ir.dot_products import multiply_add
from tilewise.kernels.native.ir.vectors import I32, Value, const
from tilewise.kernels.native.microkernels.window.runs import Run, runs
from tilewise.kernels.native.microkernels.window.spec import WindowSpec
from tilewise.kernels.native.microkernels.window.tile import Place, Readers, WindowTile

Weights = dict[tuple[int, int, int], Value]
"""By tap, input of a group and vector of the tile."""


@dataclass(frozen=True)
class GroupLanes:
    """Which channels of the image the lanes of a vector need.

    Attributes:
        needed: neighbouring channels of the image.
        loads: vectors that hold them.
        orders: for each input of a group, the channel that each lane takes.
    """

    needed: int
    loads: int
    orders: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, spec: WindowSpec) -> "GroupLanes":
        """Those of a spec."""
        needed = spec.span // spec.outputs * spec.inputs
        lanes = [min(lane, spec.span - 1) // spec.outputs for lane in range(spec.lanes)]
        orders = tuple(
            tuple(group * spec.inputs + j for group in lanes) for j in range(spec.inputs)
        )
        return cls(needed, -(-needed // spec.lanes), orders)


class PixelTile(WindowTile[Weights]):
    """Emits tiles of pixels, each with a few vectors of channels."""

    def runs(self) -> list[Run]:
        """The tiles of a line: single pixels side by side."""
        return runs(self.spec.across, 1, min(self.spec.pixels, self.spec.across.outputs))

    def held_weights(self, channel: Value) -> Weights | None:
        """The filter of a tile's channels, if registers hold it beside the sums."""
        spec = self.spec
        count = spec.taps * spec.inputs * spec.vectors
        if count + spec.sums + spec.inputs > spec.registers:
            return None
        keys = [
            (tap, j, vector)
            for tap in range(spec.taps)
            for j in range(spec.inputs)
            for vector in range(spec.vectors)
        ]
        return {key: self._weight(channel, *key) for key in keys}

    def emit(self, run: Run, place: Place, held: Weights | None) -> None:
        """One tile: pixels of a line, then lines."""
        spec, pixels = self.spec, len(run.starts)
        image = self._image_at(place)
        taken = held or {}

        def add(offset: int, readers: Readers, sums: list[Value]) -> list[Value]:
            out = list(sums)
            for at, users in spec.across.readers(pixels).items():
                pixel, tap_col = users[0]
                if not run.found[pixel][tap_col][0]:
                    continue
                for vector in range(spec.vectors):
                    read = self._image(image, offset, at, vector)
                    self._multiply(out, read, readers, users, vector, pixels, taken, place)
            return out

        sums = self.by_lines(place, self.start(pixels * spec.vectors, place), add)
        self.store(sums, self._outputs(place, pixels))

    def _multiply(
        self,
        sums: list[Value],
        read: list[Value],
        lines: Readers,
        pixels: Readers,
        vector: int,
        width: int,
        held: Weights,
        place: Place,
    ) -> None:
        """Add what one vector of the image, given for each input of a group, contributes."""
        spec = self.spec
        for line, tap_row in lines:
            for pixel, tap_col in pixels:
                at = (line * width + pixel) * spec.vectors + vector
                for j, factor in enumerate(read):
                    key = (tap_row * spec.across.taps + tap_col, j, vector)
                    weight = held[key] if held else self._weight(place.channel, *key)
                    sums[at] = multiply_add(self.v, spec.how.instruction, factor, weight, sums[at])

    def bias(self, width: int, at: Value) -> list[Value]:
        """A vector of channels for each vector of a pixel, the same for all pixels."""
        mask, vectors = self.first_lanes(self.spec.span), range(self.spec.vectors)
        row = [self.v.load(self.v.at(at, vector * self.spec.span), mask) for vector in vectors]
        return row * (width // self.spec.vectors)

    # Where things lie

    def _image_at(self, place: Place) -> Value:
        """The first tap of the tile's first output, at its first channel."""
        spec, b = self.spec, self.builder
        pixel = spec.image_channels
        group = place.channel
        if spec.outputs > 1:
            group = b.sdiv(place.channel, const(spec.outputs))
        line, column = spec.down, spec.across
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
        spec, lanes = self.spec, GroupLanes.of(self.spec)
        channel = vector * spec.span // spec.outputs * spec.inputs
        first = (line * spec.across.extent + pixel) * spec.image_channels + channel
        loaded = [
            self.load(
                self.stored.at(at, first + i * spec.lanes),
                [i * spec.lanes + lane < lanes.needed for lane in range(spec.lanes)],
            )
            for i in range(lanes.loads)
        ]
        return [self._ordered(loaded, order) for order in lanes.orders]

    def _ordered(self, loaded: list[Value], order: tuple[int, ...]) -> Value:
        """The elements of several vectors that `order` names."""
        lanes, b = self.spec.lanes, self.builder
        if order == tuple(range(lanes)):
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
        return self.load(at, [lane < spec.span for lane in range(spec.lanes)])

    def _outputs(self, place: Place, pixels: int) -> list[Value]:
        spec = self.spec
        width = spec.across.outputs * spec.channels
        at = self.moved(self.v, self.arg.c, (place.line, width), (place.column, spec.channels))
        at = self.v.offset(at, place.channel)
        return [
            self.v.at(at, line * width + pixel * spec.channels + vector * spec.span)
            for line in range(spec.lines)
            for pixel in range(pixels)
            for vector in range(spec.vectors)
        ]
