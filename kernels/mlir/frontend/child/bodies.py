"""The expression that the body of a linalg op computes for each element."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from iree.compiler import ir
from numpy.typing import NDArray

from tilewise.kernels.mlir.frontend.child.values import (
    Number,
    Structured,
    element,
    owner,
    rank,
    splat,
    structured,
)
from tilewise.kernels.mlir.frontend.nest import ContractionNest, NestRefusedError, slides
from tilewise.kernels.problem import EPILOGUES
from tilewise.kernels.quoting import quoted

INPUTS = 2  # of a sum of products
MOST_OPS = 64
MOST_PARTS = 4 * MOST_OPS  # of the expression of several ops
HUGE_FLOAT, HUGE_INTEGER = 3.4e38, 2**31 - 1
_ADD = ("arith.addf", "arith.addi")
_MULTIPLY = ("arith.mulf", "arith.muli")
FUSED = "math.fma"
MULTIPLICATIONS = (*_MULTIPLY, FUSED, "complex.mul", "arith.mulsi_extended",
                   "arith.mului_extended")  # fmt: skip
_SUBTRACT = ("arith.subf", "arith.subi")
_SIGNS = {
    **dict.fromkeys(_ADD, "+"),
    **dict.fromkeys(_MULTIPLY, "*"),
    **dict.fromkeys(_SUBTRACT, "-"),
    "arith.divf": "/",
}
Array = NDArray[Any]
NUMERIC: dict[str, Callable[..., Array]] = {
    **dict.fromkeys(_ADD, np.add),
    **dict.fromkeys(_SUBTRACT, np.subtract),
    **dict.fromkeys(_MULTIPLY, np.multiply),
    **dict.fromkeys(("arith.maximumf", "arith.maxnumf", "arith.maxsi"), np.maximum),
    **dict.fromkeys(("arith.minimumf", "arith.minnumf", "arith.minsi"), np.minimum),
    **dict.fromkeys(("math.powf", "math.fpowi"), np.power),
    "arith.divf": np.divide,
    "arith.negf": np.negative,
    "arith.select": np.where,
    "math.absf": np.abs,
    "math.erf": np.frompyfunc(math.erf, 1, 1),
    "math.tanh": np.tanh,
    "math.exp": np.exp,
    "math.sqrt": np.sqrt,
    "math.rsqrt": lambda x: 1 / np.sqrt(x),
    "math.fma": lambda x, y, z: x * y + z,
}
"""What evaluates the operations of epilogues and of constants."""
_COMPARISONS: dict[tuple[str, Number], Callable[..., Array]] = {
    **{("arith.cmpf", one): np.greater for one in (2, 3, 9, 10)},
    **{("arith.cmpf", one): np.less for one in (4, 5, 11, 12)},
    **{("arith.cmpi", one): np.greater for one in (4, 5)},
    **{("arith.cmpi", one): np.less for one in (2, 3)},
}
"""The same by predicate."""
_FAR = np.outer((-1, 1), np.geomspace(10, HUGE_FLOAT, 40))
POINTS = np.concatenate([np.linspace(-8.0, 8.0, 97), _FAR.ravel()])
"""Where bodies are evaluated, and around their own constants."""
SMOOTH = {name for name, one in EPILOGUES.items() if one.is_smooth}
FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    **{name: one.apply for name, one in EPILOGUES.items()},
    "ceiling": lambda values: values.clip(None, 6),  # of relu6, behind relu
}
DEEPEST = 6  # levels of an expression that a message shows
_EXTEND = ("arith.extf", "arith.extsi")


@dataclass(frozen=True)
class Expr:
    """An expression: an operation, or a leaf `arg`, `const` or `other`.

    `value` is the number of the argument, the constant, or the predicate of a comparison.
    """

    name: str
    of: "tuple[Expr, ...]" = ()
    value: Number = 0

    def is_constant(self, value: Number) -> bool:
        """Return whether it is this number."""
        return self.name == "const" and self.value == value


OTHER = Expr("other")


def body_of(op: Structured, *, knows_tensors: bool = True) -> Expr:
    """Return the yielded value; known scalars, and tensors if `knows_tensors`, are numbers."""
    known: dict[Any, Expr] = {}
    block = op.body
    for i, argument in enumerate(block.arguments):
        is_looked_at = i < len(op.inputs) and (knows_tensors or not rank(op.inputs[i]))
        number = splat(op.inputs[i]) if is_looked_at else None
        known[argument] = Expr("arg", (), i) if number is None else Expr("const", (), number)
    for count, view in enumerate(block.operations):
        inner = view.operation
        if count > MOST_OPS or len(inner.regions):
            return OTHER
        if inner.name == "linalg.yield":
            return _seen(known, inner.operands[0]) if len(inner.operands) == 1 else OTHER
        if len(inner.results) == 1 and inner.name != "arith.constant":
            known[inner.results[0]] = applied(inner, tuple(_seen(known, v) for v in inner.operands))
    return OTHER


def applied(op: Any, of: tuple[Expr, ...]) -> Expr:
    """Return an arith operation on expressions, with f64 numbers rounded to f32 by truncf."""
    if op.name == "arith.truncf" and of[0].name == "const" and element(op.results[0]) == "f32":
        return Expr("const", (), float(np.float32(of[0].value)))
    predicate = op.attributes["predicate"].value if op.name.startswith("arith.cmp") else 0
    return Expr(op.name, of, int(predicate))


def body_of_tensors(op: Any) -> Expr:
    """Return an arith or math operation on whole tensors as one on their elements."""
    numbers = [splat(one) for one in op.operands]
    return applied(op, tuple(
        Expr("arg", (), i) if number is None else Expr("const", (), number)
        for i, number in enumerate(numbers)
    ))  # fmt: skip


def _seen(known: dict[Any, Expr], value: Any) -> Expr:
    if value in known:
        return known[value]
    if owner(value) is None:
        return OTHER
    number = splat(value)
    return OTHER if number is None else Expr("const", (), number)


def reduces(op: Any) -> bool:
    """Return whether a linalg op with a body has a loop that is not an axis of its result."""
    if op.name == "linalg.reduce":
        return True
    if "iterator_types" not in op.attributes:
        return False
    kinds = op.attributes["iterator_types"]
    return any("reduction" in str(kind) for kind in kinds)


def sums(op: Any) -> bool:
    """Return whether the body of a linalg op adds."""
    return any(inner.name in _ADD for inner in inside(op))


def multiplies(op: Any) -> bool:
    """Return whether the body of a linalg op multiplies elements of two different tensors.

    Squares and products with a number do not count.
    """
    count, none = _inputs(op), frozenset[int]()
    inputs = list(zip(op.operands, op.regions[0].blocks[0].arguments, strict=False))[:count]
    sources = {argument: frozenset([number]) for number, (value, argument) in enumerate(inputs)
               if _has_elements(value)}  # fmt: skip
    for inner in inside(op):
        read = [sources.get(value, none) for value in inner.operands]
        is_product = inner.name in MULTIPLICATIONS and inner.operands[0] != inner.operands[1]
        if is_product and read[0] and read[1] and len(read[0] | read[1]) > 1:
            return True
        made = none.union(*read)
        if inner.name == "tensor.extract":
            made = frozenset([len(sources) + count])  # an element of a tensor that is no operand
        sources |= dict.fromkeys(inner.results, made)
    return False


def _inputs(op: Any) -> int:
    """Return the number of a linalg op's inputs, which linalg.reduce does not store."""
    if "operandSegmentSizes" in op.attributes:
        return int(op.attributes["operandSegmentSizes"][0])
    return len(op.operands) // 2


def inside(op: Any) -> Iterator[Any]:
    """Yield the operations in an op's regions, each followed by those in its own."""
    for region in op.regions:
        for block in region.blocks:
            for view in block.operations:
                yield view.operation
                yield from inside(view.operation)


def _has_elements(value: Any) -> bool:
    kind = value.type
    return isinstance(kind, ir.ShapedType) and kind.has_rank and bool(kind.rank)


def formula(body: Expr, out: int, depth: int = DEEPEST) -> str:
    """Return an expression as text, with `in1` for the first input and `out` for argument `out`.

    Levels below `depth` are written as `...`.
    """
    if body.name == "arg":
        return "out" if body.value == out else f"in{int(body.value) + 1}"
    if body.name == "const":
        return quoted(body.value)
    if body.name == OTHER.name or not depth:
        return "..."
    texts = [formula(one, out, depth - 1) for one in body.of]
    sign = _SIGNS.get(body.name)
    if sign is None:
        return f"{body.name}({', '.join(texts)})"
    bare = (None, "*") if sign in "+-" else (None,)
    return f" {sign} ".join(
        text if _SIGNS.get(one.name) in bare else f"({text})"
        for one, text in zip(body.of, texts, strict=True)
    )


def convolution_of(op: Any) -> tuple[Structured, ContractionNest, int] | None:
    """Return an op that convolves one of its two inputs, its nest, and which input that is.

    In the nest the image is the first input. Filter and result have a loop for each axis. None for
    any other op.
    """
    seen = structured(op)
    if seen is None or len(seen.inputs) != INPUTS:
        return None
    try:
        nest = seen.nest()
    except NestRefusedError:
        return None
    image = 0 if nest.a.has_windows else 1
    nest = nest.swapped() if image else nest
    is_plain = all(len(axis) == 1 and not slides(axis) for axis in (*nest.b.axes, *nest.c.axes))
    if not (is_plain and nest.a.has_windows):
        return None
    is_product = is_multiply_add(body_of(seen, knows_tensors=False), INPUTS)
    return (seen, nest, image) if is_product else None


def is_multiply_add(body: Expr, out: int) -> bool:
    """Return whether a body adds the product of the first two inputs to the result."""
    factors = _factors(body, Expr("arg", (), out))
    return factors is not None and {_factor(one) for one in factors} == {0, 1}


def _factors(body: Expr, sums: Expr) -> tuple[Expr, ...] | None:
    """Return the factors of the product that is added to `sums`; None for another body."""
    if body.name == FUSED:
        return body.of[:2] if body.of[2] == sums else None
    product = _without(body.of, sums) if body.name in _ADD else None
    return None if product is None or product.name not in _MULTIPLY else product.of


def _without(pair: tuple[Expr, ...], one: Expr) -> Expr | None:
    first, second = pair
    return second if first == one else first if second == one else None


def _factor(value: Expr) -> int | None:
    """Return the number of the argument that a factor is, widened or not."""
    if value.name in _SUBTRACT and value.of[1].is_constant(0):
        value = value.of[0]
    if value.name in _EXTEND:
        value = value.of[0]
    return int(value.value) if value.name == "arg" else None


@dataclass(frozen=True)
class ByteFactor:
    """A factor of bytes.

    Attributes:
        argument: the input that has them.
        is_unsigned: whether they are widened without a sign.
        zero: what is subtracted from them, a number or a scalar input; None for nothing.
    """

    argument: int
    is_unsigned: bool
    zero: Expr | None = None


def byte_factors(body: Expr, op: Structured) -> tuple[ByteFactor, ByteFactor] | None:
    """Return the factors of the first two inputs, less zero points; None for another body.

    Raise RefusedError for a constant zero point that is not a value of its byte.
    """
    factors = _factors(body, Expr("arg", (), len(op.inputs))) or ()
    found = {one.argument: one for one in (_byte(factor, op) for factor in factors) if one}
    return (found[0], found[1]) if found.keys() == {0, 1} else None


def _byte(value: Expr, op: Structured) -> ByteFactor | None:
    zero = None
    if value.name == "arith.subi":
        value, zero = value.of
        zero = zero.of[0] if zero.name in _EXTEND else zero
        is_scalar = zero.name == "arg" and not rank((*op.inputs, op.init)[int(zero.value)])
        if zero.name != "const" and not is_scalar:
            return None
    if value.name not in ("arith.extsi", "arith.extui") or value.of[0].name != "arg":
        return None
    number, is_unsigned = int(value.of[0].value), value.name == "arith.extui"
    if zero is None or zero.is_constant(0):
        return ByteFactor(number, is_unsigned)
    least = 0 if is_unsigned else -128
    if zero.name == "const" and not least <= zero.value < least + 256:
        raise NestRefusedError("has a zero point beyond a byte")
    return ByteFactor(number, is_unsigned, zero)


@dataclass(frozen=True)
class ResultStep:
    """Something done to a result."""

    name: str
    argument: int | None = None
    number: Number = 0


ROUNDING = ResultStep("round")
"""To a narrower type of floats."""


def steps_on(body: Expr, this: int) -> tuple[ResultStep, ...] | None:
    """Return the steps from argument `this` to the yielded value; None for unknown steps."""
    if body == Expr("arg", (), this):
        return ()
    inner, step = _last_step(body, this)
    before = None if inner is None else steps_on(inner, this)
    return before if before is None or step is None else (*before, step)


def _last_step(body: Expr, this: int) -> tuple[Expr | None, ResultStep | None]:
    if body.name == "arith.truncf":
        return body.of[0], ROUNDING
    if body.name in _ADD:
        for value, added in (body.of, body.of[::-1]):
            if added.name == "const":
                return value, ResultStep("add", number=added.value)
            if added.name == "arg" and added.value != this:
                return value, ResultStep("add", int(added.value))
    for part in _distinct(body)[:0:-1]:
        if name := function_of(body, part):
            return part, None if name == "none" else ResultStep(name)
    return None, None


def function_of(body: Expr, part: Expr) -> str:
    """Return which of `FUNCTIONS` an expression is of one of its parts; empty for none.

    Polynomials of smooth ones may overflow far away. IREE writes the tanh form of GELU with a
    rounded constant, 5.1e-5 off; the exact form is 4.6e-4 away.
    """
    every = _distinct(body)
    is_whole = any(one.name.startswith("arith.") and one.name.endswith("i") for one in every)
    most = HUGE_INTEGER if is_whole else HUGE_FLOAT
    limits = np.outer([one.value for one in every if one.name == "const"], (0.999, 1, 1.001))
    points = np.concatenate([POINTS, limits.ravel()]).clip(-most, most)
    values = evaluated(body, {id(part): points})
    if values is None:
        return ""
    values, size = np.broadcast_to(values, points.shape), np.abs(points)
    for name, apply in FUNCTIONS.items():
        slack, most = (1e-4, 1e4) if name in SMOOTH else (0.0, np.inf)
        at = size < most
        if np.allclose(values[at], apply(points[at]), slack / 10, slack * size[at].clip(0, 1)):
            return "" if is_whole and name in ("ceiling", "relu6") else name
    return ""


def parts(body: Expr) -> Iterator[Expr]:
    """Yield all parts of an expression, itself first."""
    yield body
    for one in body.of:
        yield from parts(one)


def _distinct(body: Expr) -> list[Expr]:
    """Return the parts of an expression, each object once, itself first."""
    found, known = [body], {id(body)}
    for one in found:
        for part in one.of:
            if id(part) not in known:
                known.add(id(part))
                found.append(part)
    return found


def composed(body: Expr, arguments: Mapping[int, Expr]) -> Expr | None:
    """Return an expression of expressions; None if it reads anything else, or is very long."""
    every = _distinct(made := substituted(body, arguments))
    return None if OTHER in every or len(every) > MOST_PARTS else made


def substituted(
    body: Expr, arguments: Mapping[int, Expr], done: dict[int, Expr] | None = None
) -> Expr:
    """Return an expression with its arguments replaced; parts that are one object stay one."""
    done = {} if done is None else done
    if body.name == "arg":
        return arguments.get(int(body.value), OTHER)
    if id(body) not in done:
        of = tuple(substituted(one, arguments, done) for one in body.of)
        done[id(body)] = replace(body, of=of)
    return done[id(body)]


def evaluated(body: Expr, known: dict[int, Array | None]) -> Array | None:
    """Return the values of an expression, given those of parts by identity, which it adds to."""
    if id(body) not in known:
        of = [one for part in body.of if (one := evaluated(part, known)) is not None]
        function = NUMERIC.get(body.name) or _COMPARISONS.get((body.name, body.value))
        made: Array | None = None
        if body.name == "const":
            made = np.asarray(body.value, np.float64)
        elif function and len(of) == len(body.of):
            with np.errstate(all="ignore"):
                made = np.asarray(function(*of), np.float64)
        known[id(body)] = made
    return known[id(body)]


def first_factor(body: Expr) -> int:
    """Return the argument that comes first in the product of a body that adds products."""
    first, _ = _factors(body, Expr("arg", (), INPUTS)) or (OTHER, OTHER)
    number = _factor(first)
    assert number is not None
    return number
