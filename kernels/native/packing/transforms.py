"""The transforms of Winograd and Strassen, a vector of channels at a time: copies that compute.

A tile's inputs, or products, are all in registers between the transform's two sides. Pixels outside
the image are zero and not read, and those outside the result are not written, without a padded
copy of the image and without a branch for each pixel: a selected address where channels are
neighbours, a mask where each channel is a plane of its own. Of planes a few pixels of each are
loaded and transposed in registers.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import CountedLoop, branch
from tilewise.kernels.native.ir.shuffles import joined, part, transpose
from tilewise.kernels.native.ir.vectors import ELEMENTS, I1, Value, Vectors, begin_function, const
from tilewise.kernels.native.packing.tile_maps import Method

# Addresses; strides in elements; of a tile, where the image begins and ends, in its pixels.
IMAGE_ARGUMENTS = (
    "to", "to_point", "source", "line", "pixel", "channel", "channels", "top", "bottom", "left",
    "right",
)  # fmt: skip
RESULT_ARGUMENTS = (
    "to", "line", "pixel", "channel", "channels", "source", "source_point", "bias", "rows", "cols",
)  # fmt: skip
FILTER_ARGUMENTS = ("to", "to_point", "to_row", "source", "line", "tap", "row", "cols", "depth")
MOST_PIXELS = 8  # of a plane's line that are loaded at once: those of a tile, and two more


@dataclass(frozen=True)
class PixelLimits:
    """The pixels of a border tile that exist: from `top` and `left` up to `bottom` and `right`."""

    top: Value
    bottom: Value
    left: Value
    right: Value


def _inside(builder: Builder, first: Value, end: Value, count: int) -> list[Value]:
    """Return for each of `count` lines or pixels whether it exists."""
    signed = builder.icmp_signed
    return [
        builder.and_(signed("<=", first, const(i)), signed("<", const(i), end))
        for i in range(count)
    ]


@dataclass(frozen=True)
class Places:
    """The pixels of a tile, in bytes from its first one.

    Attributes:
        lines, pixels: to each line, and to each pixel of a line.
        channel: from a channel to the next.
        limits: what exists; None where every pixel does.
    """

    lines: list[Value]
    pixels: list[Value]
    channel: Value
    limits: PixelLimits | None


class SideBySide:
    """Channels that are neighbours."""

    def __init__(self, v: Vectors, places: Places, spare: Value) -> None:
        self.v, self.places, self.spare = v, places, spare
        limits, b = places.limits, v.builder
        self.is_whole = limits is None
        if limits:
            self._down = _inside(b, limits.top, limits.bottom, len(places.lines))
            self._across = _inside(b, limits.left, limits.right, len(places.pixels))

    def read(self, line: int, at: Value, channels: Value | None) -> list[Value]:
        """Return the pixels of a line from address `at` on; of `channels`, None for all."""
        mask = None if channels is None else self.v.first_lanes(channels, 0)
        return [self.v.load(x, mask) for x in self._addresses(line, at)]

    def write(self, line: int, at: Value, values: Sequence[Value], channels: Value | None) -> None:
        """Write the pixels of a line."""
        mask = None if channels is None else self.v.first_lanes(channels, 0)
        for x, value in zip(self._addresses(line, at), values, strict=True):
            self.v.store(value, x, mask)

    def fetch_to_write(self, line: int, at: Value) -> None:
        """Prefetch the pixels of a line to the first cache, to be written."""
        for x in self._addresses(line, at):
            self.v.prefetch_for_write(x)

    def write_past_caches(self, line: int, at: Value, values: Sequence[Value]) -> None:
        """Write whole vectors to the pixels of a line, from an aligned address on."""
        for x, value in zip(self._addresses(line, at), values, strict=True):
            self.v.store_past_caches(value, x)

    def _addresses(self, line: int, at: Value) -> list[Value]:
        b = self.v.builder
        start = b.add(at, self.places.lines[line])
        found = [b.add(start, pixel) for pixel in self.places.pixels]
        if self.is_whole:
            return found
        return [
            b.select(b.and_(self._down[line], here), x, self.spare)
            for x, here in zip(found, self._across, strict=True)
        ]


class Planes:
    """Channels of which each is a plane of its own; pixels of a line are neighbours."""

    def __init__(self, v: Vectors, places: Places) -> None:
        self.v, self.places = v, places
        self._count = len(places.pixels)
        self._width = min(v.lanes, 1 << (self._count - 1).bit_length(), MOST_PIXELS)
        self._narrow = Vectors(v.builder, v.element, self._width)
        self._firsts = range(0, self._count, self._width)
        count, limits = len(places.lines), places.limits
        down = _inside(v.builder, limits.top, limits.bottom, count) if limits else []
        self._masks = [[self._mask(down, i, p) for p in self._firsts] for i in range(count)]

    def _mask(self, down: list[Value], line: int, first: int) -> Value | None:
        """Return the pixels of a line from `first` on that exist; None for all of a vector."""
        b, narrow, limits = self.v.builder, self._narrow, self.places.limits
        kind = ir.VectorType(I1, self._width)
        wanted = [first + lane < self._count for lane in range(self._width)]
        if limits is None:
            return None if all(wanted) else ir.Constant(kind, wanted)
        begun = b.xor(
            narrow.first_lanes(limits.left, first), ir.Constant(kind, [True] * len(wanted))
        )
        here = b.and_(begun, narrow.first_lanes(limits.right, first))
        here = b.and_(here, narrow.splat(down[line]))
        return here if all(wanted) else b.and_(here, ir.Constant(kind, wanted))

    def read(self, line: int, at: Value, channels: Value | None) -> list[Value]:
        """Return the pixels of a line, as `SideBySide.read`."""
        b, lanes, width = self.v.builder, self.v.lanes, self._width
        found: list[Value] = []
        for index, first in enumerate(self._firsts):
            mask = self._masks[line][index]
            rows = [
                self._narrow.load(x, self._of(mask, channel, channels))
                for channel, x in enumerate(self._addresses(line, at, first))
            ]
            groups = [
                joined(b, [rows[group + k] for group in range(0, lanes, width)])
                for k in range(width)
            ]
            found += transpose(b, groups)
        return found[: self._count]

    def write(self, line: int, at: Value, values: Sequence[Value], channels: Value | None) -> None:
        """Write the pixels of a line, as `SideBySide.write`."""
        b, width = self.v.builder, self._width
        for index, first in enumerate(self._firsts):
            pixels = list(values[first : first + width])
            groups = transpose(b, pixels + [self.v.zero] * (width - len(pixels)))
            mask = self._masks[line][index]
            for channel, x in enumerate(self._addresses(line, at, first)):
                group, k = divmod(channel, width)
                line_part = part(b, groups[k], group * width, width)
                self._narrow.store(line_part, x, self._of(mask, channel, channels))

    def fetch_to_write(self, line: int, at: Value) -> None:
        """Prefetch the pixels of a line to the first cache, to be written."""
        for first in self._firsts:
            for x in self._addresses(line, at, first):
                self.v.prefetch_for_write(x)

    def _of(self, mask: Value | None, channel: int, channels: Value | None) -> Value | None:
        """Return the mask of one channel, which need not exist."""
        if channels is None:
            return mask
        here = self._narrow.splat(self.v.builder.icmp_signed("<", const(channel), channels))
        return here if mask is None else self.v.builder.and_(mask, here)

    def _addresses(self, line: int, at: Value, first: int) -> list[Value]:
        """Return the addresses of a pixel of a line, in each channel of a vector."""
        b = self.v.builder
        found = [b.add(b.add(at, self.places.lines[line]), const(first * self.v.element.bytes))]
        for _ in range(self.v.lanes - 1):
            found.append(b.add(found[-1], self.places.channel))
        return found


@dataclass(frozen=True)
class TransformSpec:
    """All that the code of the transforms depends on.

    Attributes:
        element: of the operands, by name.
        lanes: elements of a vector.
        fma: whether the target fuses multiply and add.
        method: what they compute.
        planes: whether each channel is a plane of its own, and not a neighbour of the others.
        depth, cols: whether the last vector of input or output channels has idle lanes.
        adds, bias, relu: what the result's transform ends with: add what the result holds, then
            the bias, then cut off below 0.
        ceiling: the most that relu leaves; None for no limit.
        past_caches: whether whole tiles of the result are written past the caches.
    """

    element: str
    lanes: int
    fma: bool
    method: Method
    planes: bool
    depth: bool
    cols: bool
    adds: bool
    bias: bool
    relu: bool
    ceiling: int | None
    past_caches: bool = False


@dataclass(frozen=True)
class _Emitter:
    """A function that is being emitted."""

    fn: ir.Function
    spec: TransformSpec
    builder: Builder
    v: Vectors
    arg: dict[str, Value]

    @classmethod
    def begin(
        cls, module: ir.Module, name: str, arguments: tuple[str, ...], spec: TransformSpec
    ) -> "_Emitter":
        fn, builder, arg = begin_function(module, f"tilewise_{name}", arguments)
        v = Vectors(builder, ELEMENTS[spec.element], spec.lanes, spec.fma)
        return cls(fn, spec, builder, v, arg)

    def size(self, elements: Value) -> Value:
        """Return the bytes of so many elements."""
        return self.builder.mul(elements, const(self.v.element.bytes))

    def chain(self, first: Value, step: Value, count: int) -> list[Value]:
        """Return `count` addresses, each a step after the one before."""
        found = [first]
        for _ in range(count - 1):
            found.append(self.builder.add(found[-1], step))
        return found

    def spare(self) -> Value:
        """Return the address of a vector of zeros on the stack."""
        at = self.builder.alloca(self.v.type)
        self.builder.store(self.v.zero, at, align=self.v.element.bytes)
        return self.builder.ptrtoint(at)

    def tile(
        self, shape: tuple[int, int], limits: PixelLimits, whole: Value, body: "Body"
    ) -> ir.Function:
        """Emit `body` for an interior tile of a shape and for a border tile, and the return."""
        line, pixel, channel = (self.size(self.arg[n]) for n in ("line", "pixel", "channel"))
        lines, pixels = (
            self.chain(const(0), step, count)
            for step, count in zip((line, pixel), shape, strict=True)
        )
        spare = None if self.spec.planes else self.spare()

        def either(limits: PixelLimits | None, nothing: list[Value]) -> list[Value]:
            places = Places(lines, pixels, channel, limits)
            body(Planes(self.v, places) if spare is None else SideBySide(self.v, places, spare))
            return nothing

        branch(self.builder, whole, lambda n: either(None, n), [], lambda n: either(limits, n))
        self.builder.ret_void()
        return self.fn

    def over_channels(self, has_rest: bool, body: Callable[[Value, Value | None], None]) -> None:
        """Emit `body` for each vector of channels, from its first one, and for the rest of them."""
        b, lanes, count = self.builder, self.spec.lanes, self.arg["channels"]
        whole = b.sub(count, b.srem(count, const(lanes))) if has_rest else count
        with b.if_then(b.icmp_signed(">", whole, const(0))):
            loop = CountedLoop(b, (), "channels")
            body(loop.index, None)
            loop.close((), whole, lanes)
        if has_rest:
            rest = b.sub(count, whole)
            with b.if_then(b.icmp_signed(">", rest, const(0))):
                body(whole, rest)

    def store_points(self, to: Value, point: Value, columns: Iterable[list[Value]]) -> None:
        """Store the columns of a transformed tile, whose points lie row by row."""
        (height, width), b = self.spec.method.products, self.builder
        lines = self.chain(to, b.mul(point, const(width)), height)
        for column in columns:
            for at, value in zip(lines, column, strict=True):
                self.v.store(value, at)
            lines = [b.add(at, point) for at in lines]

    def all_of(self, conditions: list[Value]) -> Value:
        """Return whether every condition holds."""
        found = conditions[0]
        for condition in conditions[1:]:
            found = self.builder.and_(found, condition)
        return found

    def biases(self, channel: Value, mask: Value | None, width: int) -> list[Value | None]:
        """That of each value of a line of the result; None without any."""
        if not self.spec.bias:
            return [None] * width
        at = self.v.offset(self.arg["bias"], channel)
        if not self.spec.method.cuts_columns:
            return [self.v.load(at, mask)] * width
        return [self.v.load(x, mask) for x in self.chain(at, self.size(self.arg["pixel"]), width)]

    def ended(self, value: Value, bias: Value | None) -> Value:
        """Add bias and apply relu."""
        value = value if bias is None else self.v.add(value, bias)
        return self.v.relu(value, self.spec.ceiling) if self.spec.relu else value

    def channel_at(self, name: str, channel: Value) -> Value:
        """Return an address argument moved by channels."""
        return self.v.offset(self.arg[name], self.builder.mul(channel, self.arg["channel"]))


Body = Callable[[SideBySide | Planes], None]


def emit_transform_image(module: ir.Module, spec: TransformSpec) -> ir.Function:
    """to[point][channels] = the left factors of the products of the tile at `source`.

    `source` may lie outside the image; pixels above `top`, from `bottom` on, before `left` or from
    `right` on are zero and not read. Whole vectors are written.
    """
    e = _Emitter.begin(module, "transform_image", IMAGE_ARGUMENTS, spec)
    b, v, arg = e.builder, e.v, e.arg
    (shape, to_factors), point = spec.method.image, e.size(arg["to_point"])
    height, width = shape
    whole = e.all_of(
        [b.icmp_signed("<=", arg[name], const(0)) for name in ("top", "left")]
        + [b.icmp_signed(">=", arg["bottom"], const(height))]
        + [b.icmp_signed(">=", arg["right"], const(width))]
    )

    def tile(pixels: SideBySide | Planes) -> None:
        def vector(channel: Value, left: Value | None) -> None:
            source = e.channel_at("source", channel)
            rows = (pixels.read(i, source, left) for i in range(height))
            found = to_factors.columns(v, rows)
            e.store_points(v.offset(arg["to"], channel), point, found)

        e.over_channels(spec.depth, vector)

    limits = PixelLimits(*(arg[name] for name in ("top", "bottom", "left", "right")))
    return e.tile(shape, limits, whole, tile)


def emit_transform_result(module: ir.Module, spec: TransformSpec) -> ir.Function:
    """to[pixels][channels] = the tile of the products M[point][channels].

    What `to` holds, bias and relu come last. Pixels from `rows` or `cols` on do not exist and are
    not written. A tile that they cut is written to the caches: vectors of pixels that do not exist
    go to the stack.
    """
    name = "past_caches" if spec.past_caches else "transform_result"
    e = _Emitter.begin(module, name, RESULT_ARGUMENTS, spec)
    b, v, arg = e.builder, e.v, e.arg
    (height, width), point = spec.method.products, e.size(arg["source_point"])
    shape, to_values = spec.method.result
    whole = e.all_of(
        [
            b.icmp_signed(">=", arg[name], const(count))
            for name, count in zip(("rows", "cols"), shape, strict=True)
        ]
    )

    def tile(pixels: SideBySide | Planes) -> None:
        def vector(channel: Value, left: Value | None) -> None:
            source = e.chain(v.offset(arg["source"], channel), point, height * width)
            rows = ([v.load(at) for at in source[i * width :][:width]] for i in range(height))
            found = zip(*to_values.columns(v, rows), strict=True)
            mask = None if left is None else v.first_lanes(left, 0)
            biases = e.biases(channel, mask, shape[1])
            to = e.channel_at("to", channel)
            if e.spec.method.cuts_columns:  # each line far from the others: no prefetcher knows
                for i in range(shape[0]):
                    pixels.fetch_to_write(i, to)
            for i, row in enumerate(found):
                held = pixels.read(i, to, left) if spec.adds else []
                sums = list(map(v.add, row, held)) if held else row
                ended = [e.ended(one, bias) for one, bias in zip(sums, biases, strict=True)]
                if spec.past_caches and isinstance(pixels, SideBySide) and pixels.is_whole:
                    pixels.write_past_caches(i, to, ended)
                else:
                    pixels.write(i, to, ended, left)

        e.over_channels(spec.cols, vector)

    limits = PixelLimits(const(0), arg["rows"], const(0), arg["cols"])
    return e.tile(shape, limits, whole, tile)


def emit_transform_filter(module: ir.Module, spec: TransformSpec) -> ir.Function:
    """to[point][depth][to_row] = the right factors of w[taps][depth][cols], zero past `cols`."""
    e = _Emitter.begin(module, "transform_filter", FILTER_ARGUMENTS, spec)
    b, v, arg = e.builder, e.v, e.arg
    line, tap, point = (e.size(arg[name]) for name in ("line", "tap", "to_point"))
    (height, width), to_factors = spec.method.filter
    row = CountedLoop(b, (), "depth")
    source = v.offset(arg["source"], b.mul(row.index, arg["row"]))
    to = v.offset(arg["to"], b.mul(row.index, arg["to_row"]))
    vector = CountedLoop(b, (), "columns")
    mask = v.first_lanes(b.sub(arg["cols"], vector.index), 0)
    lines = e.chain(v.offset(source, vector.index), line, height)
    rows = ([v.load(at, mask) for at in e.chain(first, tap, width)] for first in lines)
    e.store_points(v.offset(to, vector.index), point, to_factors.columns(v, rows))
    vector.close((), arg["to_row"], spec.lanes)
    row.close((), arg["depth"], 1)
    b.ret_void()
    return e.fn
