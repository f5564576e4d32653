"""What register tiles of window micro-kernels share, however channels and pixels lie.

A tile has a few neighbouring lines of the result. It loads what it needs of a line of the image
once, for all its outputs that read it. The lines of the image come one after the other: those in
the padding add nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from llvmlite import ir

from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import branch
from tilewise.kernels.native.ir.dot_products import widen
from tilewise.kernels.native.ir.vectors import ELEMENTS, I1, Value, Vectors, const
from tilewise.kernels.native.microkernels.abi import ADD_BIAS, RELU, WindowArguments, ceiling_of
from tilewise.kernels.native.microkernels.window.runs import Run
from tilewise.kernels.native.microkernels.window.spec import WindowSpec

Readers = list[tuple[int, int]]
"""Outputs of a tile that read the same line or pixel, each with its tap."""

Held = TypeVar("Held")

AddLine = Callable[[int, Readers, list[Value]], list[Value]]
"""Adds a line's products to sums; the line is told by its offset, and by who reads it."""


@dataclass(frozen=True)
class Place:
    """Where a tile lies.

    Attributes:
        line, column, channel: of its first output.
        lines_found: whether the image has each line that it reads, by the offset from the first;
            None where it has them all.
    """

    line: Value
    column: Value
    channel: Value
    lines_found: dict[int, Value] | None


class WindowTile(ABC, Generic[Held]):
    """Emits tiles into one function; `Held` is a filter in registers."""

    def __init__(self, builder: Builder, spec: WindowSpec, arg: WindowArguments[Value]) -> None:
        self.builder, self.spec, self.arg = builder, spec, arg
        element = ELEMENTS[spec.how.accumulator]
        self.v = Vectors(builder, element, spec.lanes, fits=spec.fits)
        self.stored = Vectors(builder, ELEMENTS[spec.how.stored], spec.lanes)

    @abstractmethod
    def runs(self) -> list[Run]:
        """The tiles of a line."""

    @abstractmethod
    def held_weights(self, channel: Value) -> Held | None:
        """The filter of a tile's channels in registers; None where they are too few."""

    @abstractmethod
    def emit(self, run: Run, place: Place, held: Held | None) -> None:
        """One tile, from what its sums start from to the store."""

    def by_lines(self, place: Place, sums: list[Value], add: AddLine) -> list[Value]:
        """The sums plus the products of every line that the image has."""
        for offset, readers in self.spec.down.readers(self.spec.lines).items():
            if place.lines_found is None:
                sums = add(offset, readers, sums)
                continue

            def added(
                sums: list[Value], offset: int = offset, readers: Readers = readers
            ) -> list[Value]:
                return add(offset, readers, sums)

            sums = branch(self.builder, place.lines_found[offset], added, sums)
        return sums

    def start(self, width: int, place: Place) -> list[Value]:
        """What the sums of a tile start from, with so many vectors in each of its lines."""
        if not self.spec.epilogue & ADD_BIAS:
            return [self.v.zero] * (width * self.spec.lines)
        return self.bias(width, self.v.offset(self.arg.bias, place.channel)) * self.spec.lines

    @abstractmethod
    def bias(self, width: int, at: Value) -> list[Value]:
        """What is added to each of `width` vectors of a line; `at` is that of the first channel."""

    def store(self, sums: list[Value], places: Sequence[Value]) -> None:
        """Relu where it is asked for, and the store."""
        mask, ceiling = self.first_lanes(self.spec.span), ceiling_of(self.spec.epilogue)
        for value, at in zip(sums, places, strict=True):
            done = self.v.relu(value, ceiling) if self.spec.epilogue & RELU else value
            if self.spec.past_caches:
                self.v.store_past_caches(done, at)
            else:
                self.v.store(done, at, mask)

    def load(self, address: Value, found: Sequence[bool] | None = None) -> Value:
        """A vector as it is multiplied; lanes that are not found are zero, and not touched."""
        how = self.spec.how
        mask = None if found is None or all(found) else lanes_mask(found)
        return widen(self.builder, self.stored.load(address, mask), how.stored, how.accumulator)

    def splat(self, address: Value) -> Value:
        """One element in every lane, as it is multiplied."""
        how = self.spec.how
        return widen(self.builder, self.stored.load_splat(address), how.stored, how.accumulator)

    def first_lanes(self, count: int) -> Value | None:
        """The mask of a vector's first lanes; None for all of them."""
        lanes = self.spec.lanes
        return None if count == lanes else lanes_mask([lane < count for lane in range(lanes)])

    def moved(self, v: Vectors, address: Value, *moves: tuple[Value, int]) -> Value:
        """An address moved by so many steps of so many elements each."""
        for steps, elements in moves:
            address = v.offset(address, self.builder.mul(steps, const(elements)))
        return address


def lanes_mask(on: Sequence[bool]) -> Value:
    """A constant mask."""
    return ir.Constant(ir.VectorType(I1, len(on)), [int(each) for each in on])
