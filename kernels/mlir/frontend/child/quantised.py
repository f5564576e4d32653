"""Factors that are integers of few bits, less a zero point, times a scale.

    factor = scale * (code - zero)

Modules compute that element by element in several ops, or in one, around reshapes, transpositions
and broadcasts. All of them are read as one expression of the tensors that they begin with.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from tilewise.kernels.mlir.frontend.child import values
from tilewise.kernels.mlir.frontend.child.bodies import Expr, body_of, parts, substituted
from tilewise.kernels.mlir.frontend.child.strided import NotStridedError, StridedView, group_of
from tilewise.kernels.mlir.frontend.nest import NestRefusedError

MOST_READ = 48
"""Ops that are read for one factor, since most are no dequantisation."""
MOST_OPS = 10
"""Operations of one body."""
_SIGNED = ("arith.extsi", "arith.sitofp")
_UNSIGNED = ("arith.extui", "arith.uitofp")
_FLOATS = ("arith.extf", "arith.truncf")
_SUBTRACT = ("arith.subi", "arith.subf")
_ADD = ("arith.addi", "arith.addf")
_MULTIPLY = ("arith.mulf",)
_MASK = "arith.andi"
_LEFT, _RIGHT = "arith.shli", ("arith.shrui", "arith.shrsi")
_READ = (*_SIGNED, *_UNSIGNED, *_FLOATS, *_SUBTRACT, *_ADD, *_MULTIPLY, _MASK, _LEFT, *_RIGHT,
         "arg", "const")  # fmt: skip
_BITS = {"i4": 4, "i8": 8}
_NIBBLE, _LOWER = 4, 15
_SCALES = ("f32", "f16", "bf16")


@dataclass(frozen=True)
class Source:
    """A tensor that an expression begins with, as the factor's loops read it."""

    value: Any
    view: StridedView

    @property
    def is_one(self) -> bool:
        """Whether all elements of the factor read one element of it."""
        return all(step == 0 or extent == 1 for digits in self.view.axes for extent, step in digits)


@dataclass(frozen=True)
class Codes:
    """Integers, less a zero point, times a scale.

    Attributes:
        source: the tensor of integers.
        least, most: limits of their values; None while no op has given them a sign.
        zero: a number or a tensor of integers; None for none.
        scale: a number or a tensor of floats; None for none.
    """

    source: Source
    least: int | None = None
    most: int = 0
    zero: "values.Number | Codes | None" = None
    scale: "values.Number | Source | None" = None

    @property
    def bits(self) -> int:
        """Return the bits that hold all values."""
        assert self.least is not None
        return 4 if self.most - self.least < 1 << 4 else 8

    @property
    def is_unsigned(self) -> bool:
        """Return whether no value is negative."""
        return self.least == 0


def codes_of(value: Any) -> Codes | None:
    """Return a factor as integers with a zero point and a scale; None if it is anything else."""
    reader = _Reader()
    try:
        found = _folded(reader.read(value), reader.sources)
    except NestRefusedError:
        return None
    return found if isinstance(found, Codes) and found.least is not None else None


@dataclass
class _Reader:
    """Reads the ops before a value as one expression of `sources`."""

    sources: list[Source] = field(default_factory=list)
    left: int = MOST_READ

    def read(self, value: Any) -> Expr:
        """Return the expression of a value; `arg` is the number of a source."""
        number, start = values.splat(value), len(self.sources)
        if number is not None:
            return Expr("const", (), number)
        self.left -= 1
        try:
            found = self._before(value) if self.left > 0 else None
        except NotStridedError:
            found = None
        if found is not None:
            return found
        del self.sources[start:]
        self.sources.append(Source(value, StridedView.of(values.static_shape(value))))
        return Expr("arg", (), start)

    def _before(self, value: Any) -> Expr | None:
        """Return the expression of an op's result; None for an op that is not read."""
        op = values.owner(value)
        if op is None:
            return None
        start = len(self.sources)
        if op.name in values.RESHAPES:
            found, groups = self.read(op.operands[0]), values.reassociation(op)
            shape = values.static_shape(value)
            is_wider = op.name == "tensor.expand_shape"
            self._move(start, lambda view: (
                view.expanded(groups, shape) if is_wider else view.collapsed(groups)
            ))  # fmt: skip
            return found
        if op.name == "tensor.extract_slice" and len(op.operands) == 1 and _is_first(op):
            found = self.read(op.operands[0])
            shape = values.static_shape(value)
            self._move(start, lambda view: view.sliced(shape))
            return found
        if op.name == values.DEQUANTIZED:
            return self._dequantised(op)
        if op.name == "tensor.concat" and len(op.operands) == 2:
            return self._nibbles(op)
        return self._elementwise(op)

    def _nibbles(self, op: Any) -> Expr | None:
        """Return the expression of both halves of bytes, side by side along an axis."""
        start, axis = len(self.sources), op.attributes["dim"].value
        halves = [_half(self.read(one), self.sources) for one in op.operands]
        read = self.sources[start:]
        if set(halves) != {False, True} or len(read) != 2 or read[0] != read[1]:
            return None
        first = read[0]
        if first.view.shape[axis] != 1:
            return None
        axes = [tuple((extent, 2 * step) for extent, step in one) for one in first.view.axes]
        shape = list(first.view.shape)
        axes[axis], shape[axis] = ((2, -1 if halves[0] else 1),), 2
        self.sources[start:] = [Source(first.value, StridedView(tuple(axes), tuple(shape)))]
        return Expr(_MASK, (Expr("arg", (), start), Expr("const", (), _LOWER)))

    def _elementwise(self, op: Any) -> Expr | None:
        seen = values.structured(op)
        if seen is None or not seen.is_parallel or not seen.is_identity(len(seen.inputs)):
            return None
        if len(seen.body.operations) > MOST_OPS:
            return None
        every = list(parts(body := body_of(seen)))
        used = [int(one.value) for one in every if one.name == "arg"]
        is_known = all(one.name in _READ for one in every) and len(seen.inputs) not in used
        if not is_known or len(set(used)) < len(used):  # expressions would grow exponentially
            return None
        inputs = {i: self._moved(seen.inputs[i], seen.maps[i], op.results[0]) for i in used}
        return substituted(body, inputs)

    def _dequantised(self, op: Any) -> Expr | None:
        """Return the expression of `dequantize_affine`: a tensor, its scale, its zero point."""
        maps = values.axes_of(op.attributes["indexing_maps"])
        signs = ("input_unsigned" in op.attributes, "zp_unsigned" in op.attributes)
        codes, scale, *zero = [
            self._moved(value, read, op.results[0])
            for value, read in zip(list(op.operands)[:-1], maps, strict=False)
        ]
        codes, *zero = [
            one if one.name == "const" else Expr((_UNSIGNED if sign else _SIGNED)[0], (one,))
            for one, sign in zip((codes, *zero), signs, strict=False)
        ]
        shifted = Expr("arith.subi", (codes, zero[0])) if zero else codes
        return Expr("arith.mulf", (shifted, scale))

    def _moved(self, value: Any, read: Any, result: Any) -> Expr:
        """Return the expression of an operand over the loops of an op."""
        if read is None:
            raise NotStridedError
        start, shape = len(self.sources), values.static_shape(result)
        found = self.read(value)
        self._move(start, lambda view: view.remapped(read, shape))
        return found

    def _move(self, start: int, moved: Any) -> None:
        self.sources[start:] = [replace(one, view=moved(one.view)) for one in self.sources[start:]]


def _half(expr: Expr, sources: Sequence[Source]) -> bool | None:
    """Return whether an expression is the upper half of a byte; None if it is neither half."""
    is_masked = expr.name == _MASK and expr.of[1].is_constant(_LOWER)
    inner = expr.of[0] if is_masked else expr
    if inner.name == "arg":
        return False if is_masked else None
    if inner.name not in _RIGHT or not inner.of[1].is_constant(_NIBBLE):
        return None
    word = inner.of[0]
    is_low = word.name == _LEFT and word.of[1].is_constant(_NIBBLE)
    word = word.of[0] if is_low else word
    if word.name != "arg":
        return None
    is_byte = values.element(sources[int(word.value)].value) == "i8"  # others need the mask
    return not is_low if is_masked or (is_byte and inner.name == _RIGHT[0]) else None


def _is_first(op: Any) -> bool:
    """Return whether a slice has all axes of its source, and the first elements of each."""
    offsets, steps = values.static_numbers(op, "offsets", "strides")
    is_whole = values.rank(op.operands[0]) == values.rank(op.results[0])
    return is_whole and not any(offsets) and all(step == 1 for step in steps)


_Value = Codes | Source | int | float


def _folded(expr: Expr, sources: Sequence[Source]) -> _Value | None:
    """Return what an expression is: codes, floats alone, or a number; None for anything else."""
    if expr.name == "const":
        return expr.value
    if expr.name == "arg":
        source = sources[int(expr.value)]
        return Codes(source) if values.element(source.value) in _BITS else source
    if _half(expr, sources) is not None:
        (byte,) = (one for one in parts(expr) if one.name == "arg")
        return Codes(sources[int(byte.value)], 0, _LOWER)
    of = [_folded(one, sources) for one in expr.of]
    if any(one is None for one in of):
        return None
    first, *others = of
    if expr.name in (*_SIGNED, *_UNSIGNED):
        is_unsigned = expr.name in _UNSIGNED
        if isinstance(first, int):
            return _number_with_sign(first, is_unsigned=is_unsigned)
        return _with_sign(first, is_unsigned=is_unsigned) if isinstance(first, Codes) else None
    if expr.name in _FLOATS:
        return first
    if expr.name in _MULTIPLY:
        return _scaled(first, others[0])
    if expr.name in _ADD:
        codes, number = (first, others[0]) if isinstance(first, Codes) else (others[0], first)
        return _shifted(codes, -number) if isinstance(number, int | float) else None
    return _shifted(first, others[0]) if expr.name in _SUBTRACT else None


def _with_sign(codes: Codes, *, is_unsigned: bool) -> Codes | None:
    if codes.least is not None:
        return None if is_unsigned and codes.least < 0 else codes
    bits = _BITS[values.element(codes.source.value)]
    least = 0 if is_unsigned else -(1 << (bits - 1))
    return replace(codes, least=least, most=least + (1 << bits) - 1)


def _number_with_sign(number: int, *, is_unsigned: bool) -> int | None:
    """Return a number of a byte or of 4 bits once it is widened; None if that is not certain."""
    if not is_unsigned or number >= 0:
        return number
    return number + (1 << 8) if -(1 << 7) <= number < -(1 << 3) else None


def _shifted(codes: _Value | None, zero: _Value | None) -> Codes | None:
    """Return codes less a zero point, or None."""
    if not isinstance(codes, Codes) or codes.zero is not None or codes.scale is not None:
        return None
    if codes.least is None or zero is None or isinstance(zero, Source):
        return None
    if isinstance(zero, Codes):
        is_plain = zero.zero is None and zero.scale is None and zero.least is not None
        return replace(codes, zero=zero) if is_plain else None
    if not float(zero).is_integer():
        return None
    return replace(codes, zero=int(zero)) if zero else codes


def _scaled(first: _Value | None, second: _Value | None) -> Codes | None:
    codes, scale = (first, second) if isinstance(first, Codes) else (second, first)
    if not isinstance(codes, Codes) or codes.scale is not None or isinstance(scale, Codes | None):
        return None
    return replace(codes, scale=scale)


def scale_varies(codes: Codes, reduced: tuple[int, ...]) -> bool:
    """Return whether the scale is not the same along the whole reduction, of axes `reduced`."""
    if not isinstance(codes.scale, Source):
        return False
    digits = (one for axis in reduced for one in codes.scale.view.axes[axis])
    return any(extent > 1 and step for extent, step in digits)


def keys_of_weights(codes: Codes, reduced: tuple[int, ...]) -> dict[str, Any] | None:
    """Return the keys of a problem with these weights; None if no problem has such weights."""
    scale, zero = codes.scale, codes.zero
    shared = [scale] if isinstance(scale, Source) else []
    shared += [zero.source] if isinstance(zero, Codes) else []
    if not all(values.is_constant(one.value) for one in (codes.source, *shared)):
        return None
    try:
        groups = [group_of(one.view.joined(reduced)) for one in shared]
    except NotStridedError:
        return None
    depth = prod(codes.source.view.shape[axis] for axis in reduced)
    sizes = [min(one or 0, depth) for one in groups]
    group = min(sizes, default=depth)
    if not group or any(one % group for one in sizes if one < depth):
        return None
    kind = values.element(scale.value) if isinstance(scale, Source) else "f32"
    sign = _sign(codes)
    if kind not in _SCALES or sign is None:
        return None
    return {
        "b": f"i{codes.bits}",
        "group": "k" if group == depth else group,
        "scale": kind,
        "zero_b": sign and f"{sign}{codes.bits}",
    }


def _sign(codes: Codes) -> str | None:
    """Return `u` for codes with zero points, empty for codes without; None for other limits."""
    zero, half = codes.zero, 1 << (codes.bits - 1)
    assert codes.least is not None
    if isinstance(zero, Codes):
        assert zero.least is not None
        return "u" if codes.least <= zero.least and zero.most <= codes.most else None
    shift = int(zero or 0)
    if codes.least - shift >= -half and codes.most - shift < half:
        return ""
    return "u" if codes.least <= shift <= codes.most else None
