"""What a problem takes in around an op is what the module computes there, number by number."""

import random
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest

from tests.kernels.mlir.frontend.test_generics import (
    WIDENED,
    Generic,
    arranged,
    random_contraction,
    random_convolution,
    stored,
    tensor,
)
from tilewise.kernels.mlir.frontend.graph import Occurrence
from tilewise.kernels.mlir.frontend.read import read_module
from tilewise.kernels.oracle.operands import Array
from tilewise.kernels.oracle.reference import reference
from tilewise.kernels.problem import Problem, parse_problem

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")


Order = tuple[int, ...]


@dataclass(frozen=True)
class Surrounded:
    """An op, and what stands around it.

    Attributes:
        generic: the op, of zeros.
        before, order: the order of axes that each input, and the result, is transposed to, if any.
        pads: zeros on both sides of each axis of the first input, after its transposition if
            `is_late`.
        after: what follows: `bias` along an axis of the op's result, `relu`, `transpose`.
    """

    generic: Generic
    before: tuple[Order | None, Order | None]
    pads: tuple[int, ...]
    is_late: bool
    after: tuple[str, ...]
    along: int
    order: Order

    def source_shape(self, number: int) -> tuple[int, ...]:
        """Of the argument that becomes an input."""
        shape = self.generic.operand_shapes[number]
        if number == 0 and self.pads:
            shape = tuple(size - 2 * pad for size, pad in zip(shape, self.pads, strict=True))
        return _before(shape, self.before[number])

    def input(self, source: Array, number: int, *, padded: bool, transposed: bool) -> Array:
        """An argument as the op reads it, or without the padding, or without the transposition."""
        order, pads = self.before[number], self.pads if number == 0 and padded else ()
        assert transposed or not (pads and self.is_late), "zeros in between were passed over"
        value = source.transpose(order) if order is not None and transposed else source
        pads = pads if transposed or not pads else _before(pads, order)
        return np.pad(value, [(pad, pad) for pad in pads or (0,) * value.ndim])

    def text(self, name: str) -> str:
        """A function of it."""
        generic = self.generic
        shapes = self.source_shape(0), self.source_shape(1)
        a, b = (tensor(shape, generic.dtype) for shape in shapes)
        lines = generic.zeros("%start")
        first, second = (self._input(number, lines) for number in (0, 1))
        lines += generic.lines(first, second, "%start")
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

    def _input(self, number: int, lines: list[str]) -> str:
        """Append what makes an input of an argument; return its name."""
        value, shape, dtype = f"%a{number}", self.source_shape(number), self.generic.dtype
        order, pads = self.before[number], self.pads if number == 0 else ()
        for step in ("transposed", "padded") if self.is_late else ("padded", "transposed"):
            if step == "transposed" and order is not None:
                lines += _transposed(f"%transposed{number}", value, shape, order, dtype)
                value, shape = f"%transposed{number}", tuple(shape[axis] for axis in order)
            elif step == "padded" and pads:
                pads = pads if self.is_late else _before(pads, order)
                lines += _padded(value, shape, pads, dtype)
                value = "%padded"
                shape = tuple(size + 2 * pad for size, pad in zip(shape, pads, strict=True))
        return value

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


def _before(values: Order, order: Order | None) -> Order:
    """What a transposition brings into this order."""
    return values if order is None else tuple(values[order.index(i)] for i in range(len(values)))


def _padded(source: str, small: Order, pads: Order, dtype: str) -> list[str]:
    whole = tuple(size + 2 * pad for size, pad in zip(small, pads, strict=True))
    names = ", ".join(f"%i{axis}: index" for axis in range(len(small)))
    by = ", ".join(map(str, pads))
    is_float = dtype.endswith(("32", "64", "16")) and dtype[0] != "i"
    return [
        f"  %blank = arith.constant {'0.0' if is_float else '0'} : {dtype}",
        f"  %padded = tensor.pad {source} low[{by}] high[{by}] {{",
        f"  ^bb0({names}):",
        f"    tensor.yield %blank : {dtype}",
        f"  }} : {tensor(small, dtype)} to {tensor(whole, dtype)}",
    ]


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
    pads, is_late = _pads(rng, generic, is_convolution=is_convolution), rng.random() < 0.5
    along = rng.randrange(result)
    return Surrounded(generic, before, pads, is_late, tuple(steps), along, order)


def _order(rng: random.Random, rank: int) -> Order | None:
    return None if rng.random() < 0.5 else tuple(rng.sample(range(rank), rank))


def _pads(rng: random.Random, generic: Generic, *, is_convolution: bool) -> Order:
    """As much on the axes of windows as they let, on both as a rule; sometimes on another."""
    shape, axes = generic.operand_shapes[0], generic.maps[0]
    sizes = [size for size, axis in zip(shape, axes, strict=True) if len(axis) > 1]
    pad = rng.randint(0, min(2, *((size - 1) // 2 for size in sizes))) if is_convolution else 0
    pads = [pad if len(axis) > 1 else 0 for axis in axes]
    if axes and rng.random() < 0.2:
        wrong = rng.randrange(len(pads))
        pads[wrong] = 0 if pads[wrong] else int(shape[wrong] > 2)
    return tuple(pads) if any(pads) else ()


AFTER = {"bias": ("bias", "addition"), "relu": ("relu",), "transpose": ("transpose_c",)}


def check(case: Surrounded, found: Occurrence, rng: np.random.Generator) -> None:
    problem = parse_problem(found.problem)
    wide = WIDENED[problem.dtype]
    sources = [rng.integers(-4, 5, case.source_shape(i)).astype(np.int64) for i in (0, 1)]
    bias = rng.integers(-9, 10, case.generic.operand_shapes[2][case.along]).astype(np.int64)
    operands = problem_inputs(case, found, problem, sources)
    if problem.has_bias:
        operands["bias"] = stored(columns(case, found, problem, bias), wide)
    if problem.add:  # along another axis, of a result that has no other
        operands["add"] = stored(arranged(case.spread(bias), found.c), wide)
    operands["C"] = stored(np.zeros(found.c.shape, np.int64), wide)
    expected = result(case, found, sources, bias)
    value = reference(problem, operands).value
    np.testing.assert_array_equal(value, arranged(expected, found.c), err_msg=found.problem)


def problem_inputs(
    case: Surrounded, found: Occurrence, problem: Problem, sources: list[Array]
) -> dict[str, Array]:
    operands = {}
    words = "transpose_a", "transpose_b"
    for name, number, word in zip("AB", found.inputs, words, strict=True):
        padded, transposed = (one not in found.fused for one in ("pad", word))
        value = case.input(sources[number], number, padded=padded, transposed=transposed)
        operands[name] = stored(arranged(value, found.arrangements[name]), problem.dtype)
    return operands


def columns(case: Surrounded, found: Occurrence, problem: Problem, bias: Array) -> Array:
    """The bias as the problem has it; it may vary along the columns alone."""
    spread = case.spread(bias)
    if "transpose_c" in found.fused:
        spread = spread.transpose(case.order)
    whole = arranged(spread, found.c)
    if problem.has_channels_first:
        whole = np.moveaxis(whole, 1, -1)
    rows = whole.reshape(-1, whole.shape[-1])
    assert (rows == rows[0]).all(), "a bias that varies along rows"
    return np.asarray(rows[0])


def result(case: Surrounded, found: Occurrence, sources: list[Array], bias: Array) -> Array:
    """The module's values after the steps that were taken in, which are the first ones."""
    a, b = (case.input(one, i, padded=True, transposed=True) for i, one in enumerate(sources))
    value = case.generic.computed(a, b, np.zeros(case.generic.operand_shapes[2], np.int64))
    taken = [step for step in case.after if not {*AFTER[step]}.isdisjoint(found.fused)]
    assert taken == list(case.after[: len(taken)]), "a step was passed over"
    at = case.spread(bias)
    for step in taken:
        if step == "transpose":
            value, at = value.transpose(case.order), at.transpose(case.order)
        else:
            value = value + at if step == "bias" else np.maximum(value, 0)
    return value


def test_surroundings_that_are_taken_in_compute_the_same() -> None:
    rng = random.Random(11)
    cases = {f"f{i}": random_surrounded(rng) for i in range(250)}
    imported = read_module("\n".join(case.text(name) for name, case in cases.items()).encode())
    assert not imported.skipped
    numbers, fused = np.random.default_rng(11), Counter[str]()
    for one in imported.occurrences:
        case = cases.pop(one.where.split()[0].removeprefix("@"))
        check(case, one, numbers)
        fused.update(one.fused)
        assert case.after[:1] != ("relu",) or "relu" in one.fused
    assert not cases
    for word in ("pad", "transpose_a", "transpose_b", "transpose_c", "bias", "relu"):
        assert fused[word] >= 10, fused
