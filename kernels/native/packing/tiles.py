"""Pixels of a tile, read and written a vector of channels at a time, for both layouts.

Where channels lie side by side a vector of them is one load. Where each channel is a plane of its
own, a few pixels of each are loaded and transposed in registers. Pixels that do not exist are never
touched: a selected address in the one layout, a mask in the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.vectors import I1, Value, Vectors, const
from tilewise.kernels.native.packing.transposes import joined, part, transpose

MOST_PIXELS = 8  # of a plane's line that are loaded at once: those of a tile, and two more


@dataclass(frozen=True)
class Limits:
    """Of a tile that is cut: where what exists begins and ends, in its pixels."""

    top: Value
    bottom: Value
    left: Value
    right: Value

    def lines(self, builder: Builder, count: int) -> list[Value]:
        """For each line, whether it exists."""
        return _inside(builder, self.top, self.bottom, count)

    def pixels(self, builder: Builder, count: int) -> list[Value]:
        """For each pixel of a line, whether it exists."""
        return _inside(builder, self.left, self.right, count)


def _inside(builder: Builder, first: Value, end: Value, count: int) -> list[Value]:
    return [
        builder.and_(
            builder.icmp_signed("<=", first, const(i)), builder.icmp_signed("<", const(i), end)
        )
        for i in range(count)
    ]


@dataclass(frozen=True)
class Places:
    """Where the pixels of a tile lie: bytes from its first one.

    Attributes:
        lines, pixels: to each line, and to each pixel of a line.
        channel: from a channel to the next.
        limits: what exists; None where all does.
    """

    lines: list[Value]
    pixels: list[Value]
    channel: Value
    limits: Limits | None


class SideBySide:
    """Channels that are neighbours."""

    def __init__(self, v: Vectors, places: Places, spare: Value) -> None:
        self.v, self.places, self.spare = v, places, spare
        limits, b = places.limits, v.builder
        self._down = limits.lines(b, len(places.lines)) if limits else []
        self._across = limits.pixels(b, len(places.pixels)) if limits else []

    @property
    def is_whole(self) -> bool:
        """Whether every pixel exists."""
        return self.places.limits is None

    def read(self, line: int, at: Value, channels: Value | None) -> list[Value]:
        """The pixels of a line, from address `at` on, of so many channels if not of all."""
        mask = None if channels is None else self.v.first_lanes(channels, 0)
        return [self.v.load(x, mask) for x in self._addresses(line, at)]

    def write(self, line: int, at: Value, values: Sequence[Value], channels: Value | None) -> None:
        """Write the pixels of a line."""
        mask = None if channels is None else self.v.first_lanes(channels, 0)
        for x, value in zip(self._addresses(line, at), values, strict=True):
            self.v.store(value, x, mask)

    def fetch_to_write(self, line: int, at: Value) -> None:
        """Bring the pixels of a line to the first cache, to be written."""
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
        if not self.places.limits:
            return found
        return [
            b.select(b.and_(self._down[line], here), x, self.spare)
            for x, here in zip(found, self._across, strict=True)
        ]


class Planes:
    """Channels of which each is an image of its own; pixels of a line are neighbours."""

    def __init__(self, v: Vectors, places: Places) -> None:
        self.v, self.places = v, places
        self._count = len(places.pixels)
        self._width = min(v.lanes, 1 << (self._count - 1).bit_length(), MOST_PIXELS)
        self._narrow = Vectors(v.builder, v.element, self._width)
        self._firsts = range(0, self._count, self._width)
        down = places.limits.lines(v.builder, len(places.lines)) if places.limits else []
        self._masks = [
            [self._mask(down, i, p) for p in self._firsts] for i in range(len(places.lines))
        ]

    def _mask(self, down: list[Value], line: int, first: int) -> Value | None:
        """The pixels of a line from `first` on that are touched; None for all of a vector."""
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
        """As for channels that lie side by side."""
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
        """As for channels that lie side by side."""
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
        """Bring the pixels of a line to the first cache, to be written."""
        for first in self._firsts:
            for x in self._addresses(line, at, first):
                self.v.prefetch_for_write(x)

    def _of(self, mask: Value | None, channel: int, channels: Value | None) -> Value | None:
        """The mask of one channel, which need not exist."""
        if channels is None:
            return mask
        here = self._narrow.splat(self.v.builder.icmp_signed("<", const(channel), channels))
        return here if mask is None else self.v.builder.and_(mask, here)

    def _addresses(self, line: int, at: Value, first: int) -> list[Value]:
        """Of a pixel of a line, in each channel of a vector."""
        b = self.v.builder
        found = [b.add(b.add(at, self.places.lines[line]), const(first * self.v.element.bytes))]
        for _ in range(self.v.lanes - 1):
            found.append(b.add(found[-1], self.places.channel))
        return found
