"""Split transposed convolutions: an image with zeros inserted between its pixels, convolved.

Torch, ONNX and StableHLO lower to that form, which multiplies all inserted zeros. An output at
`s * p + r` reads every s-th tap of the filter alone, so outputs of one phase `r` are a convolution
of the image itself by a part of the filter. Phases with the same number of taps are one
convolution, whose output channels include the phases; a copy interleaves the results. Dilated
filters, and those with fewer taps than a block has phases, are left.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tilewise.kernels.mlir.frontend.child.bodies import convolution_of
from tilewise.kernels.mlir.frontend.child.fusion import pads_zeros
from tilewise.kernels.mlir.frontend.child.values import (
    Structured,
    element,
    owner,
    reassociation,
    splat,
    static_numbers,
)
from tilewise.kernels.mlir.frontend.child.writing import (
    Writer,
    Written,
    identity,
    index,
    is_float,
    region_of,
)
from tilewise.kernels.mlir.frontend.nest import ContractionNest

TERMS = 2  # of a window: an output and a tap


def split_transposed(op: Any) -> tuple[str, tuple[Any, ...]] | None:
    """Return what replaces a transposed convolution: a function and its operands."""
    spread = _spread(op)
    if spread is None:
        return None
    filters = spread.op.inputs[1 - spread.image]
    return _Split(spread).text(), (spread.source, filters, spread.op.init)


@dataclass(frozen=True)
class _Phases:
    """Outputs of an axis that read the same number of taps: `first` to `end` of `s` phases."""

    first: int
    end: int
    taps: int

    @property
    def count(self) -> int:
        return self.end - self.first


@dataclass(frozen=True)
class _SpreadAxis:
    """An axis of an image between whose pixels zeros are inserted.

    The first of `blocks` blocks of `step` outputs begins `skipped` outputs before the result, where
    the last tap of its last phase is on a pixel of the image: then all phases of a block read from
    the same pixel on, `before` pixels before the image for the first block.
    """

    out: int
    tap: int
    step: int
    offset: int
    size: int
    taps: int
    outs: int

    @property
    def skipped(self) -> int:
        return (self.step - 1 - self.offset) % self.step

    @property
    def before(self) -> int:
        return (self.offset + self.skipped) // self.step

    @property
    def blocks(self) -> int:
        return -(-(self.outs + self.skipped) // self.step)

    def after(self, taps: int) -> int:
        """Return the pixels that the last block reads behind the image; negative for before."""
        return self.blocks + taps - 1 - self.before - self.size

    @property
    def phases(self) -> list[_Phases]:
        """Phases in runs that have the same number of taps, which grows by one at most once."""
        taps = [-(-(self.taps - self.step + 1 + r) // self.step) for r in range(self.step)]
        starts = [r for r in range(self.step) if not r or taps[r] != taps[r - 1]]
        ends = [*starts[1:], self.step]
        return [_Phases(*one, taps[one[0]]) for one in zip(starts, ends, strict=True)]


@dataclass(frozen=True)
class _Spread:
    """A convolution of an image with inserted zeros.

    Attributes:
        nest: with the image first.
        image: the operand's number; `source` is what the zeros were inserted into, in the axes
            before `groups`, the reassociation of a reshape, if any.
        low, high: plain zeros around the image on each axis without inserted ones.
        axes: the others, by axis of the image.
    """

    op: Structured
    nest: ContractionNest
    image: int
    source: Any
    groups: list[list[int]] | None
    low: list[int]
    high: list[int]
    axes: dict[int, _SpreadAxis]


def _spread(op: Any) -> _Spread | None:
    """Return how an op convolves an image with inserted zeros; None if it does not."""
    found = convolution_of(op)
    inserted = None if found is None else _inserted(found[0].inputs[found[2]])
    if found is None or inserted is None or not set(found[1].c.dims) & set(found[1].b.dims):
        return None
    (seen, nest, image), (source, groups, offsets, steps) = found, inserted
    inner = _grown(tuple(source.type.shape), groups, nest.a.shape)
    axes = dict[int, _SpreadAxis]()
    for i, (axis, step) in enumerate(zip(nest.a.axes, steps, strict=True)):
        if step == 1:
            continue
        dims = [dim for dim, _ in axis]
        outs = [dim for dim in dims if dim in nest.c.dims]
        taps = [dim for dim in dims if dim in nest.b.dims and dim not in nest.c.dims]
        is_known = len(axis) == len(outs) + len(taps) == TERMS and all(by == 1 for _, by in axis)
        if not is_known or len(outs) != 1 or nest.extents[taps[0]] < step:
            return None
        axes[i] = _SpreadAxis(outs[0], taps[0], step, offsets[i], inner[i],
                              nest.extents[taps[0]], nest.extents[outs[0]])  # fmt: skip
    low = [0 if i in axes else offset for i, offset in enumerate(offsets)]
    high = [0 if i in axes else whole - part - before for i, (whole, part, before)
            in enumerate(zip(nest.a.shape, inner, offsets, strict=True))]  # fmt: skip
    return _Spread(seen, nest, image, source, groups, low, high, axes)


def _inserted(value: Any) -> tuple[Any, list[list[int]] | None, list[int], list[int]] | None:
    """Return what zeros were inserted into, a reshape behind, offsets and steps of each axis."""
    op, groups, low = owner(value), None, None
    if op is not None and op.name == "tensor.expand_shape":
        groups, op = reassociation(op), owner(op.operands[0])
    if op is not None and (pads := pads_zeros(op)):
        low, op = pads[0], owner(op.operands[0])
    if op is None or op.name != "tensor.insert_slice" or splat(op.operands[1]) != 0:
        return None
    source, (offsets, steps) = op.operands[0], static_numbers(op, "offsets", "strides")
    is_whole = source.type.rank == len(steps) and source.type.has_static_shape
    if not is_whole or min(offsets) < 0 or all(step == 1 for step in steps):
        return None
    offsets = [a + b for a, b in zip(offsets, low or [0] * len(steps), strict=True)]
    if groups is not None:
        origins = _origins(groups, value.type.shape)
        if any(at not in origins and (step != 1 or offset)
               for at, (step, offset) in enumerate(zip(steps, offsets, strict=True))):  # fmt: skip
            return None
        offsets = [0 if at is None else offsets[at] for at in origins]
        steps = [1 if at is None else steps[at] for at in origins]
    return source, groups, offsets, steps


def _origins(groups: list[list[int]], outer: Sequence[int]) -> list[int | None]:
    """Return the axis before a reshape for each axis behind it; None for one of several parts."""
    found = list[int | None]()
    for i, group in enumerate(groups):
        long = [axis for axis in group if outer[axis] != 1] or group[:1]
        found += [i if [axis] == long else None for axis in group]
    return found


def _grown(
    shape: tuple[int, ...], groups: list[list[int]] | None, outer: tuple[int, ...]
) -> tuple[int, ...]:
    """Return a source's shape behind a reshape, whose other axes are those of `outer`."""
    if groups is None:
        return shape
    origins = enumerate(_origins(groups, outer))
    return tuple(outer[axis] if at is None else shape[at] for axis, at in origins)


class _Split(Writer):
    """Writes the function `(source, filter, init) -> result` of a convolution.

    Loops of the op keep their numbers; those of phases follow.
    """

    def __init__(self, spread: _Spread) -> None:
        super().__init__()
        self._spread = spread
        op, nest, image = spread.op, spread.nest, spread.image
        self._x = Written("%x", tuple(spread.source.type.shape), element(op.inputs[image]))
        self._w = Written("%w", nest.b.shape, element(op.inputs[1 - image]))
        self._init = Written("%init", nest.c.shape, element(op.init))
        first = len(nest.extents)
        self._phase = {axis.out: first + i for i, axis in enumerate(spread.axes.values())}
        self._tap = {axis.tap: axis for axis in spread.axes.values()}
        self._out = {axis.out: axis for axis in spread.axes.values()}
        self._results, self._taps = ([dim for ((dim, _),) in one.axes] for one in (nest.c, nest.b))
        channel = next(dim for dim in reversed(self._results) if dim in self._taps)
        is_before = channel == self._results[-1] and channel not in nest.a.dims
        self._c_dims, self._b_dims = (
            self._with_phases(dims, dims.index(channel) + (0 if is_before else 1))
            for dims in (self._results, self._taps)
        )

    def _with_phases(self, dims: Sequence[int], at: int) -> list[int]:
        return [*dims[:at], *self._phase.values(), *dims[at:]]

    def text(self) -> str:
        """Return the function."""
        groups, x = self._spread.groups, self._x
        if groups is not None:
            shape = _grown(x.shape, groups, self._spread.nest.a.shape)
            x = self.add(f"tensor.expand_shape %x {groups} output_shape {list(shape)} : {x.type}",
                         shape, x.kind, "into")  # fmt: skip
        result = self._interleaved(self._joined(x))
        if splat(self._spread.op.init) != 0:
            result = self._sum(result)
        return self.function((self._x, self._w, self._init), result)

    def _joined(self, x: Written, run: tuple[_Phases, ...] = ()) -> Written:
        """Return the sums of all phases that begin with those of a run."""
        axes = list(self._spread.axes.values())
        if len(run) == len(axes):
            return self._convolution(x, run)
        axis = axes[len(run)]
        parts = [self._joined(x, (*run, one)) for one in axis.phases]
        if len(parts) == 1:
            return parts[0]
        at = self._c_dims.index(self._phase[axis.out])
        shape = list(parts[0].shape)
        shape[at] = axis.step
        names, kinds = (", ".join(getattr(one, of) for one in parts) for of in ("name", "type"))
        return self.add(f"tensor.concat dim({at}) {names} : ({kinds})", shape, self._init.kind)

    def _convolution(self, x: Written, run: Sequence[_Phases]) -> Written:
        """Return the sums of some phases of each axis."""
        spread, nest = self._spread, self._spread.nest
        phases = dict(zip(self._out, run, strict=True))
        extents = dict(enumerate(nest.extents))
        low, high = list(spread.low), list(spread.high)
        for i, axis in spread.axes.items():
            one = phases[axis.out]
            extents |= {axis.out: axis.blocks, axis.tap: one.taps,
                        self._phase[axis.out]: one.count}  # fmt: skip
            low[i], high[i] = axis.before, axis.after(one.taps)
        zeros = self.zeros([extents[dim] for dim in self._c_dims], self._init.kind)
        inputs = [self.padded(x, low, high), self._filter(phases, extents)]
        names = ", ".join(f"d{dim}" for dim in extents)
        reads = ", ".join(map(index, nest.a.axes))
        places = [reads, *(", ".join(f"d{dim}" for dim in dims)
                           for dims in (self._b_dims, self._c_dims))]  # fmt: skip
        if spread.image:
            places[:2], inputs = places[1::-1], inputs[::-1]
        return self.generic([f"({names}) -> ({place})" for place in places], inputs, zeros,
                            region_of(spread.op.op),
                            [dim not in self._c_dims for dim in extents])  # fmt: skip

    def _filter(self, phases: dict[int, _Phases], extents: dict[int, int]) -> Written:
        """Return the taps of some phases: of phase r every s-th from s - 1 - r on."""
        at = {dim: f"%i{i}" for i, dim in enumerate(self._b_dims)}
        lines = [f"{name} = linalg.index {i} : index" for i, name in enumerate(at.values())]
        places = []
        for i, dim in enumerate(self._taps):
            place = at[dim]
            if dim in self._tap:
                axis = self._tap[dim]
                step, last = (self.number(one, "index") for one in (
                    axis.step, axis.step - 1 - phases[axis.out].first))  # fmt: skip
                lines += [
                    f"%m{i} = arith.muli {place}, {step} : index",
                    f"%a{i} = arith.addi %m{i}, {last} : index",
                    f"%s{i} = arith.subi %a{i}, {at[self._phase[axis.out]]} : index",
                ]
                place = f"%s{i}"
            places.append(place)
        kind, body = self._w.kind, "\n".join(lines)
        out = self.empty([extents[dim] for dim in self._b_dims], kind)
        body = (f"\n^bb0(%o: {kind}):\n{body}\n%e = tensor.extract %w[{', '.join(places)}] : "
                f"{self._w.type}\nlinalg.yield %e : {kind}\n")  # fmt: skip
        return self.generic([identity(len(out.shape))], [], out, body)

    def _interleaved(self, whole: Written) -> Written:
        """Return the phases in turn along each axis, without outputs beyond the result's sides."""
        pairs = [(dim, self._phase[dim]) if dim in self._phase else (dim,)
                 for dim in self._results]  # fmt: skip
        whole = self.transposed(whole, [self._c_dims.index(dim) for pair in pairs for dim in pair])
        places = iter(range(len(whole.shape)))
        groups = [[next(places) for _ in pair] for pair in pairs]
        joined = [prod(whole.shape[at] for at in group) for group in groups]
        whole = self.add(f"tensor.collapse_shape {whole.name} {groups} : {whole.type}", joined,
                         whole.kind, "into")  # fmt: skip
        first = [self._out[dim].skipped if dim in self._out else 0 for dim in self._results]
        return self.sliced(whole, first, self._init.shape)

    def _sum(self, value: Written) -> Written:
        of = value.kind
        body = (f"\n^bb0(%a: {of}, %b: {of}, %o: {of}):\n"
                f"%s = arith.add{'f' if is_float(of) else 'i'} %a, %b : {of}\n"
                f"linalg.yield %s : {of}\n")  # fmt: skip
        same = [identity(len(value.shape))] * 3
        return self.generic(same, [value, self._init], self.empty(value.shape, of), body)
