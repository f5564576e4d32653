"""Random generics with transposes, padding, bias and relu around them, and what they compute."""

import random
from dataclasses import dataclass, replace

import numpy as np

from tests.kernels.mlir.frontend.generics import (
    WIDENED,
    Generic,
    random_contraction,
    random_convolution,
    tensor,
)
from tilewise.kernels.oracle.operands import Array

Order = tuple[int, ...]


@dataclass(frozen=True)
class Surrounded:
    """An op, and what stands around it.

    Attributes:
        generic: the op, of zeros.
        before: the order of axes that each input is transposed to, if it is.
        pads: zeros on both sides of each axis of the first input, which come before it is
            transposed; none where there are none.
        after: what follows: `bias`, `relu`, `transpose`, each once at most.
        along: the axis of the op's result along which the bias varies.
        order: the order of axes that the result is transposed to.
    """

    generic: Generic
    before: tuple[Order | None, Order | None]
    pads: tuple[int, ...]
    after: tuple[str, ...]
    along: int
    order: Order

    def source_shape(self, number: int) -> tuple[int, ...]:
        """Of the argument that becomes an input."""
        shape = self.generic.operand_shapes[number]
        order = self.before[number]
        if order is not None:
            shape = tuple(shape[order.index(axis)] for axis in range(len(shape)))
        if number == 0 and self.pads:
            shape = tuple(size - 2 * pad for size, pad in zip(shape, self.pads, strict=True))
        return shape

    def input(self, source: Array, number: int, *, padded: bool, transposed: bool) -> Array:
        """An argument as the op reads it, or without the padding, or without the transposition."""
        if number == 0 and self.pads and padded:
            source = np.pad(source, [(pad, pad) for pad in self.pads])
        order = self.before[number]
        return source.transpose(order) if order is not None and transposed else source

    def text(self, name: str) -> str:
        """A function of it."""
        generic = self.generic
        shapes = self.source_shape(0), self.source_shape(1)
        a, b = (tensor(shape, generic.dtype) for shape in shapes)
        lines = [*generic.zeros("%start"), *self._padded(), *self._inputs()]
        lines += generic.lines("%in0", "%in1", "%start")
        value, shape = "%r", generic.operand_shapes[2]
        for step in self.after:
            made, shape = self._step(step, value, shape)
            lines += made
            value = f"%{step}"
        wide = WIDENED[generic.dtype]
        bias = tensor((generic.operand_shapes[2][self.along],), wide)
        kind = tensor(shape, wide)
        body = "\n".join(lines)
        return (
            f"func.func @{name}(%a0: {a}, %a1: {b}, %b: {bias}) -> {kind} {{\n"
            f"{body}\n  return {value} : {kind}\n}}"
        )

    def _padded(self) -> list[str]:
        if not self.pads:
            return []
        dtype, small = self.generic.dtype, self.source_shape(0)
        whole = tuple(size + 2 * pad for size, pad in zip(small, self.pads, strict=True))
        names = ", ".join(f"%i{axis}: index" for axis in range(len(small)))
        by = ", ".join(map(str, self.pads))
        is_float = dtype.endswith(("32", "64", "16")) and dtype[0] != "i"
        return [
            f"  %blank = arith.constant {'0.0' if is_float else '0'} : {dtype}",
            f"  %padded = tensor.pad %a0 low[{by}] high[{by}] {{",
            f"  ^bb0({names}):",
            f"    tensor.yield %blank : {dtype}",
            f"  }} : {tensor(small, dtype)} to {tensor(whole, dtype)}",
        ]

    def _inputs(self) -> list[str]:
        lines = []
        for number, source in enumerate(("%padded" if self.pads else "%a0", "%a1")):
            shape, dtype = self.generic.operand_shapes[number], self.generic.dtype
            order = self.before[number]
            kept = order or tuple(range(len(shape)))
            start = tuple(shape[kept.index(axis)] for axis in range(len(shape)))
            if order is None:
                kind = tensor(shape, dtype)
                lines.append(f"  %in{number} = tensor.cast {source} : {kind} to {kind}")
            else:
                lines += _transposed(f"%in{number}", source, start, order, dtype)
        return lines

    def _step(self, step: str, value: str, shape: Order) -> tuple[list[str], Order]:
        wide = WIDENED[self.generic.dtype]
        if step == "transpose":
            made = tuple(shape[axis] for axis in self.order)
            return _transposed("%transpose", value, shape, self.order, wide), made
        dims = ", ".join(f"d{axis}" for axis in range(len(shape)))
        whole = f"affine_map<({dims}) -> ({dims})>"
        kind, float_ = tensor(shape, wide), wide.startswith("f")
        is_late = "transpose" in self.after[: self.after.index(step)]
        at = self.order.index(self.along) if is_late else self.along
        if step == "bias":
            maps = f"{whole}, affine_map<({dims}) -> (d{at})>, {whole}"
            inputs = f"ins({value}, %b : {kind}, {tensor((shape[at],), wide)})"
            names = f"%x: {wide}, %y: {wide}, %o: {wide}"
            body = f"arith.add{'f' if float_ else 'i'} %x, %y : {wide}"
        else:
            maps, inputs = f"{whole}, {whole}", f"ins({value} : {kind})"
            names = f"%x: {wide}, %o: {wide}"
            body = f"arith.max{'imumf' if float_ else 'si'} %x, %zero : {wide}"
        iterators = ", ".join(['"parallel"'] * len(shape))
        return [
            f"  %{step}_empty = tensor.empty() : {kind}",
            f"  %{step} = linalg.generic {{indexing_maps = [{maps}], "
            f"iterator_types = [{iterators}]}} {inputs} outs(%{step}_empty : {kind}) {{",
            f"  ^bb0({names}):",
            f"    %v = {body}",
            f"    linalg.yield %v : {wide}",
            f"  }} -> {kind}",
        ], shape

    def spread(self, bias: Array) -> Array:
        """The bias in the shape of the op's result."""
        shape = self.generic.operand_shapes[2]
        long = [shape[axis] if axis == self.along else 1 for axis in range(len(shape))]
        return np.broadcast_to(bias.reshape(long), shape)


def _transposed(name: str, source: str, shape: Order, order: Order, dtype: str) -> list[str]:
    made = tensor((shape[axis] for axis in order), dtype)
    by = ", ".join(map(str, order))
    empty = f"{name}_empty"
    return [
        f"  {empty} = tensor.empty() : {made}",
        f"  {name} = linalg.transpose ins({source} : {tensor(shape, dtype)}) "
        f"outs({empty} : {made}) permutation = [{by}]",
    ]


def random_surrounded(rng: random.Random) -> Surrounded:
    """An op that is a problem with anything around it, in any order."""
    is_convolution = rng.random() < 0.5
    while True:
        generic = (random_convolution if is_convolution else random_contraction)(rng)
        if generic.trap == "none":
            break
    generic = replace(generic, accumulates=False)
    first, second, result = (len(shape) for shape in generic.operand_shapes)
    before = (_order(rng, first), _order(rng, second))
    order = _order(rng, result) or tuple(range(result))
    steps = [step for step in ("bias", "relu", "transpose") if rng.random() < 0.6]
    if list(order) == sorted(order):
        steps = [step for step in steps if step != "transpose"]
    rng.shuffle(steps)
    return Surrounded(
        generic,
        before,
        _pads(rng, generic, before[0]) if is_convolution else (),
        tuple(steps),
        rng.randrange(result),
        order,
    )


def _order(rng: random.Random, rank: int) -> Order | None:
    if rng.random() < 0.5:
        return None
    order = list(range(rank))
    rng.shuffle(order)
    return tuple(order)


def _pads(rng: random.Random, generic: Generic, order: Order | None) -> Order:
    """As much on the axes of windows as they let, on both as a rule; sometimes on another."""
    shape, axes = generic.operand_shapes[0], generic.maps[0]
    most = min((size - 1) // 2 for size, axis in zip(shape, axes, strict=True) if len(axis) > 1)
    pad = rng.randint(0, min(most, 2))
    if not pad:
        return ()
    pads = [pad if len(axis) > 1 else 0 for axis in axes]
    if rng.random() < 0.2:
        wrong = rng.randrange(len(pads))
        pads[wrong] = 0 if pads[wrong] else int(shape[wrong] > 2)
    kept = order or tuple(range(len(pads)))
    return tuple(pads[kept.index(axis)] for axis in range(len(pads)))
