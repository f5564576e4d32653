"""Run a nest in NumPy, node by node; this defines the meaning of a nest.

Loops visit blocks, stages copy them (what follows reads the copy alone), the micro-kernel adds the
products of a tile, a store ends the sums. So every schedule of every problem can be tested against
the reference with nothing compiled.

Operands come in float64 or int64; integer sums wrap as 32-bit accumulators do.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from string import ascii_letters
from typing import Any

import numpy as np

from tilewise.kernels.nest.access import Axis, Role
from tilewise.kernels.nest.nest import Nest
from tilewise.kernels.nest.nodes import Compute, Loop, LoopKind, Node, Stage, Store
from tilewise.kernels.problem.rounding import quantised, rounded

Array = np.ndarray[Any, Any]
Indices = Mapping[str, Array]
"""For each dim, the positions along it that a block has."""


@dataclass
class StagedBlock:
    """A copy of a block: its elements, an axis for each of `dims`, and where it begins."""

    data: Array
    dims: tuple[str, ...]
    first: dict[str, int]

    def read(self, at: Indices) -> Array:
        """Return the elements of a smaller block; IndexError where it is not inside this one."""
        where = []
        for axis, dim in enumerate(self.dims):
            positions, size = at[dim] - self.first[dim], self.data.shape[axis]
            if positions.size and not 0 <= positions.min() <= positions.max() < size:
                raise IndexError(f"{dim} is read outside the staged block")
            where.append(positions)
        return np.asarray(self.data[np.ix_(*where)])


@dataclass
class State:
    """The state of a run at a node.

    Attributes:
        at: the positions of the present block, per dim.
        staged: the copies that stages made, by role.
        sums: of the present tile, an axis for each of the result's dims.
        products: of all points, for a bilinear algorithm.
        begins, ends: whether this k-block is the first, the last.
    """

    at: dict[str, Array]
    staged: dict[str, StagedBlock] = field(default_factory=dict)
    sums: Array | None = None
    products: list[tuple[dict[str, Array], Array]] = field(default_factory=list)
    begins: bool = True
    ends: bool = True


class Interpreter:
    """Runs one nest, and counts the calls of its micro-kernel.

    Args:
        nest: what is run.
        operands: by the problem's names; C is copied before it is written.
    """

    def __init__(self, nest: Nest, operands: Mapping[str, Array]) -> None:
        self.nest = nest
        self.operands = {**operands, "C": np.array(operands["C"])}
        for name, shape in nest.problem.operand_shapes.items():  # other ones after the step fuse
            self.operands[name] = self.operands[name].reshape(shape)
        for factor in nest.problem.zero:
            name = factor.upper()
            self.operands[name] = self.operands[name] - self.operands[f"zero_{factor}"]
        if weights := nest.problem.quantised_weights:
            self.operands["B"] = weights.dequantised(self.operands)
        self.shape_of_c = operands["C"].shape
        self.reduced = nest.named(Role.TAP, Role.K)
        self.result = tuple(d.name for d in nest.dims if d.name not in self.reduced)
        self.calls = 0
        self.ahead: dict[str, StagedBlock] = {}

    def run(self) -> Array:
        """Return C."""
        state = State({d.name: np.arange(d.extent) for d in self.nest.dims})
        for stage in self.nest.nodes(Stage):
            if stage.is_ahead:
                self.ahead[stage.operand] = self._staged(stage, state)
        self._nodes(self.nest.body, state)
        return self.operands["C"].reshape(self.shape_of_c)

    def _nodes(self, nodes: tuple[Node, ...], state: State) -> None:
        for node in nodes:  # a prefetch means nothing
            if isinstance(node, Loop):
                self._loop(node, state)
            elif isinstance(node, Stage):
                block = self.ahead[node.operand] if node.is_ahead else self._staged(node, state)
                state.staged[node.operand] = block
            elif isinstance(node, Compute):
                self._compute(node, state)
            elif isinstance(node, Store):
                self._transform(node, state) if node.transforms else self._store(node, state)

    def _loop(self, loop: Loop, state: State) -> None:
        blocks = list(_blocks(loop, state.at[loop.dim]))
        if loop.kind is LoopKind.PARALLEL:
            blocks.reverse()  # nothing orders its trips
        for trip, block in enumerate(blocks):
            inner = replace(state, at=state.at | {loop.dim: block}, staged=dict(state.staged))
            if loop.kind is LoopKind.K_BLOCK:
                inner.begins, inner.ends = trip == 0, trip == len(blocks) - 1
            self._nodes(loop.body, inner)

    def _staged(self, stage: Stage, state: State) -> StagedBlock:
        dims = self._dims(stage.operand)
        if stage.transforms:
            algorithm, (point,) = self.nest.algorithm, self.nest.named(Role.POINT)
            assert algorithm is not None
            data = algorithm.stage(stage.operand, self.operands, state.at)
            is_a, k = stage.operand == "A", self.nest.k
            dims = (point, self.nest.row, k) if is_a else (point, k, self.nest.col)
        else:
            data = self._read(stage.operand, state, dims)
        return StagedBlock(np.array(data), dims, {dim: int(state.at[dim][0]) for dim in dims})

    def _dims(self, role: str) -> tuple[str, ...]:
        return tuple(d for d in self.nest.extents if d in self.nest.operand(role).dims)

    def _read(
        self, role: str, state: State, dims: tuple[str, ...], values: Array | None = None
    ) -> Array:
        """The elements of a block, an axis for each of `dims`; zero outside of the operand.

        `values` lie as the operand does, and are read in its place.
        """
        operand = self.nest.operand(role)
        stored = (self.operands[operand.name] if values is None else values).reshape(operand.shape)
        inside, clipped = np.array(True), list[Array]()
        for axis in operand.axes:
            positions = _positions(axis, state.at, dims)
            inside = inside & (positions >= 0) & (positions < axis.size)
            clipped.append(np.clip(positions, 0, axis.size - 1))
        found = np.where(inside, stored[tuple(clipped)], 0)
        return np.broadcast_to(found, [len(state.at[d]) if d in operand.dims else 1 for d in dims])

    def _compute(self, compute: Compute, state: State) -> None:
        self.calls += 1
        tile, rows, cols = compute.tile, state.at[self.nest.row], state.at[self.nest.col]
        if tile is not None and (len(rows) > tile.rows or len(cols) > tile.cols):
            raise ValueError("a block is larger than the register tile")
        factors = []
        for role in ("A", "B"):
            if block := state.staged.get(role):
                factors.append((block.dims, block.read(state.at)))
            else:
                dims = self._dims(role)
                factors.append((dims, self._read(role, state, dims)))
        state.sums = self._product(compute.lanes, *factors)
        if self.nest.algorithm is not None:
            state.products.append((dict(state.at), state.sums))

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
        padded = np.pad(every, [(0, 0)] * (every.ndim - 1) + [(0, -every.shape[-1] % lanes)])
        partial: Array = padded.reshape(*every.shape[:-1], -1, lanes).sum(axis=-2)
        return np.asarray(partial.sum(axis=-1))

    def _store(self, store: Store, state: State) -> None:
        c = self.nest.operand("C")
        assert state.sums is not None
        where = tuple(np.broadcast_arrays(*(_positions(a, state.at, self.result) for a in c.axes)))
        out = self.operands["C"].reshape(c.shape)
        sums = state.sums.reshape(where[0].shape)
        if not state.begins or store.adds_to_c:
            sums = sums + out[where]
        if state.begins and store.has_bias:
            sums = sums + self._read("bias", state, self.result)
        if state.ends and store.has_addition:
            sums = sums + self.operands["add"].reshape(c.shape)[where]
        sums = _wrapped(sums)
        out[where] = self._ended(store.epilogue.apply(sums), store, state) if state.ends else sums

    def _ended(self, sums: Array, store: Store, state: State) -> Array:
        if not store.requant:
            return rounded(sums, store.rounds_to)
        scale = self.operands["scale_c"]
        if store.requant == "channel":  # one for each value of a bias
            scale = self._read("bias", state, self.result, scale)
        return quantised(sums, scale, self.operands["zero_c"], store.rounds_to)

    def _transform(self, store: Store, state: State) -> None:
        """Put the products of all points and tiles together, and transform them to C."""
        algorithm, dims = self.nest.algorithm, self.result
        assert algorithm is not None
        first = {d: int(state.at[d][0]) for d in dims}
        products = np.full([len(state.at[d]) for d in dims], np.nan)
        for at, sums in state.products:
            products[np.ix_(*(at[d] - first[d] for d in dims))] = sums
        state.products.clear()
        for where, cols, sums in algorithm.combine(products, state.at):
            extra = self.operands["C"][where] if store.adds_to_c else 0
            bias = self.operands["bias"][cols] if store.has_bias else 0
            self.operands["C"][where] = store.epilogue.apply(sums + extra + bias)


def _positions(axis: Axis, at: Indices, dims: tuple[str, ...]) -> Array:
    """The positions of a block along a stored axis, with an axis for each of `dims`."""
    out = np.array(axis.offset).reshape([1] * len(dims))
    for term in axis.terms:
        value = at[term.dim] // term.div
        value = value % term.mod if term.mod else value
        out = out + (term.scale * value).reshape([-1 if dim == term.dim else 1 for dim in dims])
    return out


def _blocks(loop: Loop, positions: Array) -> Iterator[Array]:
    """The blocks in turn; of several streams each has equal shares of all of them."""
    step, streams = loop.step, loop.streams
    if streams > 1:
        whole = len(positions) // step * step
        shares = positions[:whole].reshape(streams, -1, step // streams)
        yield from shares.transpose(1, 0, 2).reshape(-1, step)
        positions = positions[whole:]
    for first in range(0, len(positions), step):
        yield positions[first : first + step]


def _wrapped(sums: Array) -> Array:
    """Integers modulo 2**32, as their accumulators hold them."""
    if sums.dtype.kind == "f":
        return sums
    half = 1 << 31
    return np.asarray((sums.astype(np.int64) + half) % (1 << 32) - half)
