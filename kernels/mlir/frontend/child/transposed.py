"""Split transposed convolutions: an image with zeros inserted between its pixels, convolved.

Torch, ONNX and StableHLO lower to that form, which multiplies all inserted zeros. An output at
`s * p + r` reads every s-th tap of the filter alone, so outputs of one phase `r` are a convolution
of the image itself by a part of the filter. Phases with the same number of taps are one
convolution, whose output channels include the phases; a copy interleaves the results. Dilated
filters, and those with fewer taps than a block has phases, are left.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from iree.compiler import ir

from tilewise.kernels.mlir.frontend.child.bodies import body_of, is_multiply_add
from tilewise.kernels.mlir.frontend.child.fusion import pads_zeros
from tilewise.kernels.mlir.frontend.child.operations import operations
from tilewise.kernels.mlir.frontend.child.values import (
    Structured,
    element,
    integers,
    owner,
    reassociation,
    splat,
    structured,
)
from tilewise.kernels.mlir.frontend.nest import ContractionNest, NestRefusedError

INPUTS = 2
_IS_TRANSPOSED = 6  # operand of torch.aten.convolution
_NAMES = ("torch.aten.conv_transpose", "onnx.ConvTranspose")


def has_transposed(module: Any) -> bool:
    """Return whether a module, in its own dialect, may have an image with inserted zeros."""
    return any(_inserts(op) for op, _, _ in operations(module.operation))


def _inserts(op: Any) -> bool:
    name = str(op.attributes["name"].value if op.name == "torch.operator" else op.name)
    if name == "torch.aten.convolution":
        flag = owner(op.operands[_IS_TRANSPOSED])
        return flag is None or flag.name != "torch.constant.bool" \
            or bool(flag.attributes["value"].value)  # fmt: skip
    if name == "stablehlo.convolution":
        return "lhs_dilation" in op.attributes and max(op.attributes["lhs_dilation"]) > 1
    if name == "tensor.insert_slice":
        return max(integers(op.attributes["static_strides"]), default=1) > 1
    return name.startswith(_NAMES)


def split(module: Any) -> bool:
    """Split the transposed convolutions of a module on linalg in place; return whether any was."""
    found = [(op, _spread(op)) for op, _, _ in operations(module.operation)]
    for op, spread in found:
        if spread is not None:
            _replace(op, spread)
    return any(spread is not None for _, spread in found)


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
    seen = structured(op)
    if seen is None or len(seen.inputs) != INPUTS:
        return None
    try:
        nest = seen.nest()
    except NestRefusedError:
        return None
    image = 0 if nest.a.has_windows else 1
    operand, filters = (nest.b, nest.a) if image else (nest.a, nest.b)
    found = _inserted(seen.inputs[image])
    is_plain = all(len(axis) == 1 and axis[0][1] == 1 for axis in (*filters.axes, *nest.c.axes))
    if found is None or not operand.has_windows or not is_plain:
        return None
    if not is_multiply_add(body_of(seen, knows_tensors=False), INPUTS):
        return None
    source, groups, offsets, steps = found
    inner = _grown(tuple(source.type.shape), groups, operand.shape)
    axes = dict[int, _SpreadAxis]()
    for i, (axis, step) in enumerate(zip(operand.axes, steps, strict=True)):
        if step == 1:
            continue
        dims = [dim for dim, _ in axis]
        outs = [dim for dim in dims if dim in nest.c.dims]
        taps = [dim for dim in dims if dim in filters.dims and dim not in nest.c.dims]
        is_known = len(axis) == len(outs) + len(taps) == INPUTS and all(by == 1 for _, by in axis)
        if not is_known or len(outs) != 1 or nest.extents[taps[0]] < step:
            return None
        axes[i] = _SpreadAxis(outs[0], taps[0], step, offsets[i], inner[i],
                              nest.extents[taps[0]], nest.extents[outs[0]])  # fmt: skip
    low = [0 if i in axes else offset for i, offset in enumerate(offsets)]
    high = [0 if i in axes else whole - part - before for i, (whole, part, before)
            in enumerate(zip(operand.shape, inner, offsets, strict=True))]  # fmt: skip
    return _Spread(seen, nest, image, source, groups, low, high, axes)


def _inserted(value: Any) -> tuple[Any, list[list[int]] | None, list[int], list[int]] | None:
    """Return what zeros were inserted into, a reshape behind, offsets and steps of each axis."""
    op, groups, low = owner(value), None, None
    if op is not None and op.name == "tensor.expand_shape":
        groups, op = reassociation(op), owner(op.operands[0])
    if op is not None and op.name == "tensor.pad":
        pads = pads_zeros(op)
        if pads is None:
            return None
        low, op = pads[0], owner(op.operands[0])
    if op is None or op.name != "tensor.insert_slice" or splat(op.operands[1]) != 0:
        return None
    source, offsets, steps = op.operands[0], *(
        integers(op.attributes[name]) for name in ("static_offsets", "static_strides")
    )  # fmt: skip
    kind = source.type
    if len(kind.shape) != len(steps) or not kind.has_static_shape or min(offsets) < 0 \
            or all(step == 1 for step in steps):  # fmt: skip
        return None
    offsets = [a + b for a, b in zip(offsets, low or [0] * len(steps), strict=True)]
    for group, step, offset in zip(groups or (), steps, offsets, strict=False):
        if len(group) > 1 and (step != 1 or offset):
            return None
    if groups is not None:
        offsets, steps = ([side[i] for i, group in enumerate(groups) for _ in group]
                          for side in (offsets, steps))  # fmt: skip
    return source, groups, offsets, steps


def _grown(
    shape: tuple[int, ...], groups: list[list[int]] | None, outer: tuple[int, ...]
) -> tuple[int, ...]:
    """Return a source's shape behind a reshape, whose other axes are those of `outer`."""
    if groups is None:
        return shape
    return tuple(outer[axis] if len(group) > 1 else shape[i]
                 for i, group in enumerate(groups) for axis in group)  # fmt: skip


def _replace(op: Any, spread: _Spread) -> None:
    """Replace an op by the convolutions of its phases."""
    module = ir.Module.parse(_Text(spread).function(), op.context)
    block = module.body.operations[0].operation.regions[0].blocks[0]
    seen = spread.op
    given = (spread.source, seen.inputs[1 - spread.image], seen.init)
    known = dict(zip(block.arguments, given, strict=True))
    for view in block.operations:
        one = view.operation
        if one.name == "func.return":
            op.results[0].replace_all_uses_with(known[one.operands[0]])
            break
        made = one.clone(ip=ir.InsertionPoint(op))
        made.location = op.location
        for inner in _with_inner(made):
            for at, value in enumerate(inner.operands):
                if value in known:
                    inner.operands[at] = known[value]
        known |= zip(one.results, made.results, strict=True)
    _erase(op)


def _with_inner(op: Any) -> Iterator[Any]:
    yield op
    for region in op.regions:
        for block in region.blocks:
            yield from (view.operation for view in block.operations)


def _erase(op: Any) -> None:
    """Erase an op that nothing uses, and those that it alone used."""
    makers = [owner(value) for value in op.operands]
    op.erase()
    for maker in dict.fromkeys(one for one in makers if one is not None):
        if not any(list(result.uses) for result in maker.results):
            _erase(maker)


class _Text:
    """The function `(source, filter, init) -> result` of a convolution, as text.

    Loops of the op keep their numbers; those of phases follow.
    """

    def __init__(self, spread: _Spread) -> None:
        self._spread, self._lines, self._count = spread, list[str](), 0
        op, nest, image = spread.op, spread.nest, spread.image
        self._image, filters = (nest.b, nest.a) if image else (nest.a, nest.b)
        self._kinds = [element(op.inputs[image]), element(op.inputs[1 - image]), element(op.init)]
        self._filter_shape = filters.shape
        first = len(nest.extents)
        self._phase = {axis.out: first + i for i, axis in enumerate(spread.axes.values())}
        self._tap = {axis.tap: axis for axis in spread.axes.values()}
        self._out = {axis.out: axis for axis in spread.axes.values()}
        results, taps = [_dim(axis) for axis in nest.c.axes], [_dim(axis) for axis in filters.axes]
        self._results, self._taps = results, taps
        channel = next(dim for dim in reversed(results) if dim in taps)
        is_before = channel == results[-1] and channel not in self._image.dims
        self._c_dims, self._b_dims = (
            self._with_phases(dims, channel, is_before=is_before) for dims in (results, taps)
        )

    def _with_phases(self, dims: Sequence[int], channel: int, *, is_before: bool) -> list[int]:
        at = dims.index(channel) + (0 if is_before else 1)
        return [*dims[:at], *self._phase.values(), *dims[at:]]

    def function(self) -> str:
        """Return the text."""
        spread, x = self._spread, "%x"
        x_type, c_type = str(spread.source.type), str(spread.op.init.type)
        w_type = _tensor(self._filter_shape, self._kinds[1])
        if spread.groups is not None:
            shape = _grown(tuple(spread.source.type.shape), spread.groups, self._image.shape)
            kind = _tensor(shape, self._kinds[0])
            x = self._add(f"tensor.expand_shape %x {spread.groups} output_shape {list(shape)} : "
                          f"{x_type} into {kind}")  # fmt: skip
        result = self._interleaved(*self._joined(x))
        if splat(spread.op.init) != 0:
            result = self._sum(result, c_type)
        lines = "\n".join(f"  {line}" for line in self._lines)
        return (f"func.func @f(%x: {x_type}, %w: {w_type}, %init: {c_type}) -> {c_type} {{\n"
                f"{lines}\n  func.return {result} : {c_type}\n}}\n")  # fmt: skip

    def _joined(self, x: str, run: tuple[_Phases, ...] = ()) -> tuple[str, list[int]]:
        """Return the sums of all phases that begin with those of a run, and their shape."""
        axes = list(self._spread.axes.values())
        if len(run) == len(axes):
            return self._convolution(x, run)
        axis, kind = axes[len(run)], self._kinds[2]
        parts = [self._joined(x, (*run, one)) for one in axis.phases]
        at = self._c_dims.index(self._phase[axis.out])
        shape = list(parts[0][1])
        shape[at] = axis.step
        names = ", ".join(name for name, _ in parts)
        kinds = ", ".join(_tensor(of, kind) for _, of in parts)
        if len(parts) == 1:
            return parts[0]
        joined = f"tensor.concat dim({at}) {names} : ({kinds}) -> {_tensor(shape, kind)}"
        return self._add(joined), shape

    def _add(self, text: str) -> str:
        name = f"%v{self._count}"
        self._count += 1
        self._lines.append(f"{name} = {text}")
        return name

    def _empty(self, shape: Sequence[int], kind: str) -> str:
        return self._add(f"tensor.empty() : {_tensor(shape, kind)}")

    def _number(self, kind: str) -> str:
        is_float = kind[0] in "fb"
        return self._add(f"arith.constant {'0.0' if is_float else '0'} : {kind}")

    def _zeros(self, shape: Sequence[int], kind: str) -> str:
        zero, empty, of = self._number(kind), self._empty(shape, kind), _tensor(shape, kind)
        return self._add(f"linalg.fill ins({zero} : {kind}) outs({empty} : {of}) -> {of}")

    def _convolution(self, x: str, run: Sequence[_Phases]) -> tuple[str, list[int]]:
        """Return the sums of some phases of each axis, and their shape."""
        spread, nest = self._spread, self._spread.nest
        phases = dict(zip(self._out, run, strict=True))
        extents = dict(enumerate(nest.extents))
        for axis, one in zip(self._out.values(), run, strict=True):
            extents |= {axis.out: axis.blocks, axis.tap: one.taps,
                        self._phase[axis.out]: one.count}  # fmt: skip
        shape = [extents[dim] for dim in self._c_dims]
        zeros = self._zeros(shape, self._kinds[2])
        image, image_shape = self._padded(x, phases)
        filters = self._filter(phases, extents)
        names = ", ".join(f"d{dim}" for dim in range(len(extents)))
        reads = ", ".join(" + ".join(f"d{dim} * {by}" for dim, by in axis) or "0"
                          for axis in self._image.axes)  # fmt: skip
        places = [reads, *(", ".join(f"d{dim}" for dim in dims)
                           for dims in (self._b_dims, self._c_dims))]  # fmt: skip
        operands = [
            (image, _tensor(image_shape, self._kinds[0])),
            (filters, _tensor([extents[dim] for dim in self._b_dims], self._kinds[1])),
        ]
        if spread.image:
            places[:2], operands = places[1::-1], operands[::-1]
        maps = ", ".join(f"affine_map<({names}) -> ({place})>" for place in places)
        loops = ", ".join('"parallel"' if dim in self._c_dims else '"reduction"'
                          for dim in range(len(extents)))  # fmt: skip
        kind = _tensor(shape, self._kinds[2])
        sums = self._add(
            f"linalg.generic {{indexing_maps = [{maps}], iterator_types = [{loops}]}} "
            f"ins({operands[0][0]}, {operands[1][0]} : {operands[0][1]}, {operands[1][1]}) "
            f"outs({zeros} : {kind}) {{{_region(spread.op.op)}}} -> {kind}"
        )
        return sums, shape

    def _padded(self, x: str, phases: dict[int, _Phases]) -> tuple[str, list[int]]:
        """Return the image as some phases read it: with zeros around it, or less of it."""
        spread = self._spread
        shape = list(_grown(tuple(spread.source.type.shape), spread.groups, self._image.shape))
        low, high = list(spread.low), list(spread.high)
        for i, axis in spread.axes.items():
            low[i], high[i] = axis.before, axis.after(phases[axis.out].taps)
        kind = _tensor(shape, self._kinds[0])
        if any(one < 0 for one in high):
            shape = [size + min(0, one) for size, one in zip(shape, high, strict=True)]
            high = [max(0, one) for one in high]
            less, zeros, ones = _tensor(shape, self._kinds[0]), [0] * len(shape), [1] * len(shape)
            x = self._add(f"tensor.extract_slice {x}{zeros} {shape} {ones} : {kind} to {less}")
            kind = less
        if not any((*low, *high)):
            return x, shape
        grown = [sum(one) for one in zip(shape, low, high, strict=True)]
        zero = self._number(self._kinds[0])
        places = ", ".join(f"%i{at}: index" for at in range(len(shape)))
        padded = self._add(
            f"tensor.pad {x} low{low} high{high} {{\n^bb0({places}):\n"
            f"tensor.yield {zero} : {self._kinds[0]}\n}} : {kind} to "
            f"{_tensor(grown, self._kinds[0])}"
        )
        return padded, grown

    def _filter(self, phases: dict[int, _Phases], extents: dict[int, int]) -> str:
        """Return the taps of some phases: of phase r every s-th from s - 1 - r on."""
        shape = [extents[dim] for dim in self._b_dims]
        at = {dim: f"%i{i}" for i, dim in enumerate(self._b_dims)}
        lines = [f"{name} = linalg.index {i} : index" for i, name in enumerate(at.values())]
        numbers = dict[int, str]()
        places = []
        for i, dim in enumerate(self._taps):
            place = at[dim]
            if dim in self._tap:
                axis = self._tap[dim]
                last = axis.step - 1 - phases[axis.out].first
                for number in (axis.step, last):
                    if number not in numbers:
                        numbers[number] = self._add(f"arith.constant {number} : index")
                lines += [
                    f"%m{i} = arith.muli {place}, {numbers[axis.step]} : index",
                    f"%a{i} = arith.addi %m{i}, {numbers[last]} : index",
                    f"%s{i} = arith.subi %a{i}, {at[self._phase[axis.out]]} : index",
                ]
                place = f"%s{i}"
            places.append(place)
        kind, to = self._kinds[1], _tensor(shape, self._kinds[1])
        empty, body = self._empty(shape, kind), "\n".join(lines)
        loops = ", ".join(['"parallel"'] * len(shape))
        return self._add(
            f"linalg.generic {{indexing_maps = [{_identity(len(shape))}], "
            f"iterator_types = [{loops}]}} outs({empty} : {to}) {{\n^bb0(%o: {kind}):\n{body}\n"
            f"%e = tensor.extract %w[{', '.join(places)}] : {_tensor(self._filter_shape, kind)}\n"
            f"linalg.yield %e : {kind}\n}} -> {to}"
        )

    def _interleaved(self, whole: str, shape: Sequence[int]) -> str:
        """Return the phases in turn along each axis, without outputs beyond the result's sides."""
        pairs = [(dim, self._phase[dim]) if dim in self._phase else (dim,)
                 for dim in self._results]  # fmt: skip
        order = [self._c_dims.index(dim) for pair in pairs for dim in pair]
        kind, turned = self._kinds[2], [shape[at] for at in order]
        of, to, empty = _tensor(shape, kind), _tensor(turned, kind), self._empty(turned, kind)
        whole = self._add(f"linalg.transpose ins({whole} : {of}) outs({empty} : {to}) "
                          f"permutation = {order}")  # fmt: skip
        places = iter(range(len(order)))
        groups = [[next(places) for _ in pair] for pair in pairs]
        joined = [prod(turned[at] for at in group) for group in groups]
        flat = _tensor(joined, kind)
        whole = self._add(f"tensor.collapse_shape {whole} {groups} : {to} into {flat}")
        first = [self._out[dim].skipped if dim in self._out else 0 for dim in self._results]
        wanted = list(self._spread.nest.c.shape)
        if joined == wanted:
            return whole
        return self._add(f"tensor.extract_slice {whole}{first} {wanted} {[1] * len(wanted)} : "
                         f"{flat} to {_tensor(wanted, kind)}")  # fmt: skip

    def _sum(self, value: str, kind: str) -> str:
        of, shape = self._kinds[2], self._spread.nest.c.shape
        empty, same = self._empty(shape, of), _identity(len(shape))
        loops = ", ".join(['"parallel"'] * len(shape))
        return self._add(
            f"linalg.generic {{indexing_maps = [{same}, {same}, {same}], "
            f"iterator_types = [{loops}]}} ins({value}, %init : {kind}, {kind}) "
            f"outs({empty} : {kind}) {{\n^bb0(%a: {of}, %b: {of}, %o: {of}):\n"
            f"%s = arith.add{'f' if of[0] in 'fb' else 'i'} %a, %b : {of}\n"
            f"linalg.yield %s : {of}\n}} -> {kind}"
        )


def _dim(axis: Sequence[tuple[int, int]]) -> int:
    """Return the one loop that an axis of a filter or a result runs along."""
    ((dim, _),) = axis
    return dim


def _tensor(shape: Sequence[int], kind: str) -> str:
    return f"tensor<{'x'.join(map(str, (*shape, kind)))}>"


def _identity(rank: int) -> str:
    names = ", ".join(f"d{i}" for i in range(rank))
    return f"affine_map<({names}) -> ({names})>"


def _region(op: Any) -> str:
    """Return the body of an op of linalg as text."""
    text = str(op.get_asm(print_generic_op_form=True, use_local_scope=True))
    return text[text.index("({") + 2 : text.rindex("})")]
