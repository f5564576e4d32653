"""Run a nest on real operands with numpy, node by node, as its definition.

Any schedule of any problem can be tested against the reference so, with nothing compiled: loops
visit blocks, stages copy them (what follows reads the copy, and finds nothing outside it), the
micro-kernel adds products of a tile, a store ends the sums.

Operands come in float64 or int64; integer sums wrap as 32-bit accumulators do.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from string import ascii_letters

import numpy as np

from tilewise.kernels.nest import arrays
from tilewise.kernels.nest.access import Role
from tilewise.kernels.nest.arrays import Array
from tilewise.kernels.nest.nest import Nest
from tilewise.kernels.nest.nodes import (
    Compute,
    Fetch,
    Layout,
    Loop,
    LoopKind,
    Node,
    Stage,
    Store,
)


@dataclass
class Buffer:
    """A staged block: its elements, an axis for each of `order`, and where it begins."""

    data: Array
    order: tuple[str, ...]
    first: dict[str, int]

    def read(self, at: Mapping[str, Array], order: tuple[str, ...]) -> Array:
        """Return the elements of a smaller block; IndexError where it is not inside this one."""
        where = []
        for axis, dim in enumerate(self.order):
            places = at[dim] - self.first[dim]
            if places.size and (places.min() < 0 or places.max() >= self.data.shape[axis]):
                raise IndexError(f"{dim} is read outside the staged block")
            where.append(places)
        found: Array = self.data[np.ix_(*where)]
        have = [d for d in order if d in self.order]
        found = found.transpose([self.order.index(d) for d in have])
        shape = [len(at[d]) if d in self.order else 1 for d in order]
        return found.reshape(shape)


@dataclass
class ImageBuffer:
    """A staged block of an image with halo and padding, by the positions of its stored axes."""

    data: Array
    nest: Nest
    role: str
    first: tuple[int, ...]

    def read(self, at: Mapping[str, Array], order: tuple[str, ...]) -> Array:
        """Return the elements of a smaller block; IndexError where it is not inside this one."""
        operand = self.nest.operand(self.role)
        where = []
        for axis, first, size in zip(operand.axes, self.first, self.data.shape, strict=True):
            places = arrays.positions(axis, at, order) - first
            if places.min() < 0 or places.max() >= size:
                raise IndexError("the image is read outside the staged block")
            where.append(places)
        found: Array = self.data[tuple(np.broadcast_arrays(*where))]
        return found


@dataclass
class State:
    """Where a run is.

    Attributes:
        at: the positions of the present block, per dim.
        buffers: what stages left, by role.
        sums: of the present tile, an axis for each of the result's dims.
        products: of all points, for an algorithm.
        begins, ends: whether this k-block is the first, the last.
    """

    at: dict[str, Array]
    buffers: dict[str, Buffer | ImageBuffer] = field(default_factory=dict)
    sums: Array | None = None
    products: list[tuple[dict[str, Array], Array]] = field(default_factory=list)
    begins: bool = True
    ends: bool = True


class Interpreter:
    """Runs one nest.

    Args:
        nest: what is run.
        operands: by the problem's names; C is written.
    """

    def __init__(self, nest: Nest, operands: dict[str, Array]) -> None:
        self.nest, self.operands = nest, operands
        self.reduced = nest.named(Role.TAP, Role.K)
        self.result = tuple(d.name for d in nest.dims if d.name not in self.reduced)
        self.calls = 0
        self.staged = {"A": 0, "B": 0}
        self.ahead: dict[str, Buffer | ImageBuffer] = {}

    def run(self) -> Array:
        """Return C."""
        whole = {d.name: np.arange(d.extent) for d in self.nest.dims}
        state = State(whole)
        for stage in self.nest.nodes(Stage):
            if stage.is_ahead:
                self.ahead[stage.operand] = self._staged(stage, state)
        self._nodes(self.nest.body, state)
        return self.operands["C"]

    def _nodes(self, nodes: tuple[Node, ...], state: State) -> None:
        for node in nodes:
            if isinstance(node, Loop):
                self._loop(node, state)
            elif isinstance(node, Stage):
                self._stage(node, state)
            elif isinstance(node, Compute):
                self._compute(node, state)
            elif isinstance(node, Store):
                self._store(node, state)
            else:
                assert isinstance(node, Fetch)

    def _loop(self, loop: Loop, state: State) -> None:
        blocks = list(self._blocks(loop, state.at[loop.dim]))
        if loop.kind is LoopKind.PARALLEL:
            blocks.reverse()  # nothing orders its trips
        for trip, block in enumerate(blocks):
            inner = replace(state, at=state.at | {loop.dim: block}, buffers=dict(state.buffers))
            if loop.kind is LoopKind.K_BLOCK:
                inner.begins, inner.ends = trip == 0, trip == len(blocks) - 1
            self._nodes(loop.body, inner)

    @staticmethod
    def _blocks(loop: Loop, positions: Array) -> Iterator[Array]:
        """The blocks in turn; of several streams each has equal shares of all of them."""
        step, streams = loop.step, loop.streams
        whole = len(positions) // step * step
        if streams > 1:
            shares = positions[:whole].reshape(streams, -1, step // streams)
            yield from shares.transpose(1, 0, 2).reshape(-1, step)
            positions = positions[whole:]
        for first in range(0, len(positions), step):
            yield positions[first : first + step]

    def _stage(self, stage: Stage, state: State) -> None:
        if stage.is_ahead:
            state.buffers[stage.operand] = self.ahead[stage.operand]
        else:
            state.buffers[stage.operand] = self._staged(stage, state)
            self.staged[stage.operand] += 1

    def _staged(self, stage: Stage, state: State) -> Buffer | ImageBuffer:
        operand = self.nest.operand(stage.operand)
        if stage.layout is Layout.IMAGE:
            return self._image(stage, state)
        order = tuple(d for d in self.nest.extents if d in operand.dims)
        if stage.transforms:
            algorithm, (point,) = self.nest.algorithm, self.nest.named(Role.POINT)
            assert algorithm is not None
            data = algorithm.stage(stage.operand, self.operands, state.at)
            row, col, k = self.nest.row, self.nest.col, self.nest.k
            order = (point, row, k) if stage.operand == "A" else (point, k, col)
        else:
            data = arrays.read(operand, self.operands[operand.name], state.at, order)
        return Buffer(np.array(data), order, {dim: int(state.at[dim][0]) for dim in order})

    def _image(self, stage: Stage, state: State) -> ImageBuffer:
        """The lines and pixels from the first one that the block reads to the last one."""
        operand = self.nest.operand(stage.operand)
        order = tuple(d for d in self.nest.extents if d in operand.dims)
        ranges = []
        for axis in operand.axes:
            places = arrays.positions(axis, state.at, order)
            ranges.append(np.arange(places.min(), places.max() + 1))
        stored = self.operands[operand.name].reshape(operand.shape)
        clipped = [
            np.clip(r, 0, axis.size - 1) for r, axis in zip(ranges, operand.axes, strict=True)
        ]
        data = stored[np.ix_(*clipped)]
        for at, (places, axis) in enumerate(zip(ranges, operand.axes, strict=True)):
            shape = [-1 if at == other else 1 for other in range(data.ndim)]
            inside = (places >= 0) & (places < axis.size)
            data = np.where(inside.reshape(shape), data, 0)
        return ImageBuffer(data, self.nest, stage.operand, tuple(int(r[0]) for r in ranges))

    def _compute(self, compute: Compute, state: State) -> None:
        self.calls += 1
        tile = compute.tile
        if tile is not None and (
            len(state.at[self.nest.row]) > tile.rows or len(state.at[self.nest.col]) > tile.cols
        ):
            raise ValueError("a block is larger than the register tile")
        blocks = []
        for role in ("A", "B"):
            operand = self.nest.operand(role)
            order = tuple(d for d in self.nest.extents if d in operand.dims)
            if role in state.buffers:
                data = state.buffers[role].read(state.at, order)
            else:
                data = arrays.read(operand, self.operands[operand.name], state.at, order)
            blocks.append((order, data))
        sums = self._product(compute.lanes, *blocks)
        if self.nest.algorithm is not None:
            state.products.append((dict(state.at), sums))
        state.sums = sums

    def _product(
        self, lanes: int, a: tuple[tuple[str, ...], Array], b: tuple[tuple[str, ...], Array]
    ) -> Array:
        letter = dict(zip(self.nest.extents, ascii_letters, strict=False))

        def spelled(dims: tuple[str, ...]) -> str:
            return "".join(letter[d] for d in dims)

        given = f"{spelled(a[0])},{spelled(b[0])}"
        if lanes == 1:
            sums: Array = np.einsum(f"{given}->{spelled(self.result)}", a[1], b[1])
            return sums
        every = np.einsum(f"{given}->{spelled((*self.result, *self.reduced))}", a[1], b[1])
        depth = every.shape[-1]
        padded = np.pad(every, [(0, 0)] * (every.ndim - 1) + [(0, -depth % lanes)])
        parts: Array = padded.reshape(*every.shape[:-1], -1, lanes).sum(axis=-2).sum(axis=-1)
        return parts

    def _store(self, store: Store, state: State) -> None:
        c = self.nest.operand("C")
        if store.transforms:
            self._combine(store, state)
            return
        assert state.sums is not None
        where = arrays.places(c, state.at, self.result)
        out = self.operands["C"].reshape(c.shape)
        sums = state.sums.reshape(where[0].shape)
        if not state.begins or store.adds_to_c:
            sums = sums + out[where]
        if state.begins and store.has_bias:
            bias = self.nest.operand("bias")
            sums = sums + arrays.read(bias, self.operands["bias"], state.at, self.result)
        sums = _wrapped(sums)
        out[where] = _activated(store, sums) if state.ends else sums

    def _combine(self, store: Store, state: State) -> None:
        """Put the products of all points and tiles together, and transform them."""
        algorithm, order = self.nest.algorithm, self.result
        assert algorithm is not None
        first = {d: int(state.at[d][0]) for d in order}
        products = np.full([len(state.at[d]) for d in order], np.nan)
        for at, sums in state.products:
            products[np.ix_(*(at[d] - first[d] for d in order))] = sums
        state.products.clear()
        for where, cols, sums in algorithm.combine(products, state.at):
            extra = self.operands["C"][where] if store.adds_to_c else 0
            bias = self.operands["bias"][cols] if store.has_bias else 0
            self.operands["C"][where] = _activated(store, sums + extra + bias)


def _wrapped(sums: Array) -> Array:
    """Integers modulo 2**32, as their accumulators hold them."""
    if sums.dtype.kind == "f":
        return sums
    half = 1 << 31
    wrapped: Array = (sums.astype(np.int64) + half) % (1 << 32) - half
    return wrapped


def _activated(store: Store, sums: Array) -> Array:
    if not store.has_relu:
        return sums
    return np.asarray(np.clip(sums, 0, store.ceiling))


def run(nest: Nest, operands: Mapping[str, Array]) -> Array:
    """Return C as `nest` computes it of operands by the problem's names."""
    return Interpreter(nest, {name: np.array(array) for name, array in operands.items()}).run()
