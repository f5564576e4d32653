"""The values of constants, through the ops that a compiler evaluates at load time."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from iree.compiler import ir
from numpy.typing import NDArray

from tilewise.kernels.mlir.dialects import children
from tilewise.kernels.mlir.frontend.child.bodies import NUMERIC
from tilewise.kernels.mlir.frontend.child.values import (
    MOST_STEPS,
    Number,
    Structured,
    element,
    is_used,
    owner,
    rank,
    splat,
    static_numbers,
    static_shape,
    structured,
)
from tilewise.kernels.mlir.frontend.graph import SAME_BYTES
from tilewise.kernels.mlir.frontend.nest import Axis, NestRefusedError, slides
from tilewise.kernels.mlir.frontend.program import WEIGHT_TYPES, Pad

Array = NDArray[Any]
_TYPES: dict[str, type[Any]] = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16,
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
}  # fmt: skip


def _unsigned(array: Array) -> Array:
    return array.view(f"u{array.dtype.itemsize}")


_INTEGERS = {"arith.addi": np.add, "arith.subi": np.subtract, "arith.muli": np.multiply}
_OPERATIONS: dict[str, Callable[..., Array]] = {
    **NUMERIC, **_INTEGERS,
    "arith.andi": np.bitwise_and, "arith.shli": np.left_shift, "arith.shrsi": np.right_shift,
    "arith.shrui": lambda x, y: np.right_shift(_unsigned(x), _unsigned(y)).view(x.dtype),
    "arith.extsi": np.positive, "arith.sitofp": np.positive, "arith.extf": np.positive,
    "arith.truncf": np.positive, "arith.trunci": np.positive,
    "arith.extui": _unsigned, "arith.uitofp": _unsigned,
}  # fmt: skip
"""Operations on elements; each result is then converted to its own type."""


def is_foldable(op: Structured) -> bool:
    """Return whether each element is a known function of elements of the inputs."""
    *body, _ = (view.operation for view in op.body.operations)
    return op.is_parallel and op.is_identity(len(op.inputs)) and all(map(_is_known, body))


def _is_known(op: Any) -> bool:
    if op.name == "arith.constant":
        return True
    of, made = map(element, op.operands), element(op.results[0])
    if made == "bf16":
        return bool(op.name == "arith.truncf") and set(of) == {"f32"}
    return op.name in _OPERATIONS and all(kind in _TYPES for kind in (*of, made))


def folded(op: Structured, value: Callable[[Any], Array], shape: Sequence[int]) -> Array:
    """Return the elements of the result of a foldable op, from the `value` of each input."""
    order = [axis[0][0] for axis in op.maps[-1] or ()]
    inputs = zip(op.inputs, op.maps[:-1], strict=True)
    known = dict(zip(
        op.body.arguments,
        (_over_loops(value(one), axes, len(shape)) if rank(one) else _scalar(one)
         for one, axes in inputs),
        strict=False,
    ))  # fmt: skip
    *body, last = (view.operation for view in op.body.operations)
    for one in body:
        if one.name != "arith.constant":
            of = (known[given] if given in known else _scalar(given) for given in one.operands)
            known[one.results[0]] = _applied(one, of)
    left = last.operands[0]
    found = known[left] if left in known else _scalar(left)
    return np.broadcast_to(found, [shape[at] for at in np.argsort(order)]).transpose(order)


def _applied(op: Any, of: Iterable[Array]) -> Array:
    """Return the result of a known operation on numbers."""
    with np.errstate(all="ignore"):
        return _converted(_OPERATIONS[op.name](*of), element(op.results[0]))


def _scalar(value: Any) -> Array:
    number = splat(value)
    if number is None:
        raise NestRefusedError("reads a weight that is not computed from a constant")
    return np.asarray(number).astype(_TYPES[element(value)])


def _converted(values: Array | Number, name: str) -> Array:
    """Return numbers in an element type; bf16 as its bits."""
    return to_bf16(np.asarray(values)) if name == "bf16" else np.asarray(values, _TYPES[name])


def _over_loops(array: Array, read: tuple[Axis, ...] | None, loops: int) -> Array:
    """Return an array with an axis for each loop, of length one where it is not read."""
    dims = [dim for axis in read or () for dim, _ in axis]
    if read is None or len(set(dims)) < len(dims) or any(map(slides, read)):
        raise NestRefusedError("reads a weight at an unsupported index")
    array = array[tuple(slice(None) if axis else 0 for axis in read)]
    array = array.transpose(np.argsort(dims)) if dims else array
    return array.reshape([array.shape[sorted(dims).index(i)] if i in dims else 1
                          for i in range(loops)])  # fmt: skip


_ENTRY = re.compile(rb'(?:"([^"\n]*)"|([A-Za-z0-9_.$-]+))\s*:\s*"0x([0-9A-Fa-f]*)"')
_RESOURCE = re.compile(r'dense_resource<(?:"(.*)"|(.*))> : tensor<[^<>]*>')
_HEX = re.compile(r'dense<"0x([0-9A-Fa-f]*)"> : ')
_ALIGNMENT_BYTES = 4  # before the values of a resource
_HALF = 16


class Constants:
    """The values of a module's constants; all zeros if `text`, with its resources, is None."""

    def __init__(self, text: bytes | None) -> None:
        self._is_cut, text = text is None, text or b""
        begin = text.rfind(b"{-#")
        found = () if begin < 0 else _ENTRY.finditer(text, begin)
        self._text = text
        self._resources = {(one[1] or one[2]).decode(): one.span(3) for one in found}

    def value(self, value: Any, steps: int = MOST_STEPS) -> Array:
        """Return the elements of a constant, or raise RefusedError if they cannot be computed."""
        op, shape, dtype = owner(value), static_shape(value), _stored(element(value))
        if op is None or not steps:
            raise NestRefusedError("reads a weight that is not a constant of the module")
        number = splat(value)
        if number is not None:
            return np.broadcast_to(_converted(number, element(value)), shape)
        if op.name == "arith.constant":
            return self._attribute(op.attributes["value"], shape, dtype)
        seen, values = structured(op), (self.value(one, steps - 1) for one in op.operands)
        if op.name in SAME_BYTES:
            stored: Array = next(values).view(dtype)
            return stored.reshape(shape)
        if op.name == "tensor.extract_slice" and len(op.operands) == 1:
            parts = zip(*static_numbers(op, "offsets", "sizes", "strides"), strict=True)
            at = tuple(slice(first, first + size * by, by) for first, size, by in parts)
            return next(values)[at].reshape(shape)
        if op.name == "tensor.pad":
            pad, given = padding(op), next(values)
            fill = _converted(pad.value, element(value))
            return np.pad(given, tuple(zip(pad.low, pad.high, strict=True)), constant_values=fill)
        if op.name == "tensor.concat":
            return np.concatenate(tuple(values), op.attributes["dim"].value)
        if op.name in _OPERATIONS and _is_known(op):
            return _applied(op, values)
        if seen is not None and (read := _gathered(seen)) is not None:
            return _elements(seen, self.value(read, steps - 1), shape)
        if seen is not None and is_foldable(seen):
            return folded(seen, lambda one: self.value(one, steps - 1), shape)
        raise NestRefusedError(f"reads a weight that {op.name} computes")

    def _attribute(self, attribute: Any, shape: tuple[int, ...], dtype: type[Any]) -> Array:
        if isinstance(attribute, ir.DenseElementsAttr):
            return _of_dense(attribute, shape, dtype)
        named = _RESOURCE.fullmatch(str(attribute))
        span = None if named is None else self._resources.get(named[1] or named[2])
        if span is None and self._is_cut:
            return np.zeros(shape, dtype)
        if span is None:
            raise NestRefusedError("reads a weight whose bytes are not in the module")
        raw = bytes.fromhex(self._text[slice(*span)].decode())[_ALIGNMENT_BYTES:]
        return _of_bytes(raw, shape, dtype)


def padding(op: Any) -> Pad:
    """Return what `tensor.pad` adds; raise RefusedError unless it adds one number."""
    if len(op.operands) != 1:
        raise NestRefusedError("pads by dynamic sizes")
    *_, end = children(op)
    value = splat(end.operands[0])
    if value is None:
        raise NestRefusedError("pads with more than one number")
    low, high = static_numbers(op, "low", "high")
    if min(*low, *high) < 0:
        raise NestRefusedError("pads by a negative size")
    return Pad(tuple(low), tuple(high), float(value))


def to_bf16(values: Array) -> Array:
    """Return f32 rounded to the nearest bf16, ties to even, as bits."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> _HALF) & 1)) >> _HALF
    return np.where(np.isnan(values), (bits >> _HALF) | 0x40, rounded).astype(np.uint16)


def _stored(name: str) -> type[Any]:
    if name not in WEIGHT_TYPES:
        raise NestRefusedError(f"reads weights of {name}; {', '.join(WEIGHT_TYPES)} are run here")
    return WEIGHT_TYPES[name]


def _of_dense(attribute: Any, shape: tuple[int, ...], dtype: type[Any]) -> Array:
    if dtype is not np.uint16:
        return np.array(attribute).reshape(shape)
    text = str(attribute)  # MLIR gives no buffer of bf16
    raw = _HEX.match(text)
    if raw is not None:
        return _of_bytes(bytes.fromhex(raw[1]), shape, dtype)
    body = text.removeprefix("dense<").rpartition("> : ")[0]
    numbers = body.replace("[", " ").replace("]", " ").replace(",", " ").split()
    return to_bf16(np.array([_number(one) for one in numbers], np.float32)).reshape(shape)


def _number(text: str) -> float:
    """Return a bf16 that MLIR printed; non-finite ones are printed as bits."""
    if not text.startswith("0x"):
        return float(text)
    return float(np.array([int(text, 16) << _HALF], np.uint32).view(np.float32)[0])


def _of_bytes(raw: bytes, shape: tuple[int, ...], dtype: type[Any]) -> Array:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if len(raw) == np.dtype(dtype).itemsize and size > len(raw):  # a splat
        return np.broadcast_to(np.frombuffer(raw, dtype)[0], shape)
    if len(raw) != size:
        raise NestRefusedError(f"reads a weight of {len(raw)} bytes that should have {size}")
    return np.frombuffer(raw, dtype).reshape(shape)


def _gathered(op: Structured) -> Any | None:
    """Return the tensor that an op without inputs reads by `tensor.extract`, and nothing else.

    Such ops reverse the filters of transposed convolutions. None for other ops.
    """
    *_, read, left = (None, *(view.operation for view in op.body.operations))
    is_alone = not op.inputs and not is_used(op.body.arguments[-1])
    if not is_alone or read is None or read.name != "tensor.extract":
        return None
    return read.operands[0] if left.operands[0] == read.results[0] else None


def _elements(op: Structured, values: Array, shape: tuple[int, ...]) -> Array:
    """Return the elements of an array that an op reads at sums and products of its indices."""
    known: dict[Any, Any] = {}
    grid = np.indices(shape, sparse=True)
    *body, read, _ = (view.operation for view in op.body.operations)
    for one in body:
        if one.name == "linalg.index":
            known[one.results[0]] = grid[one.attributes["dim"].value]
            continue
        if one.name not in _INTEGERS:
            raise NestRefusedError(f"reads a weight at an index that {one.name} computes")
        pair = (_index(value, known) for value in one.operands)
        known[one.results[0]] = _INTEGERS[one.name](*pair)
    at = tuple(_index(value, known) for value in list(read.operands)[1:])
    return np.asarray(np.broadcast_to(values[at], shape))


def _index(value: Any, known: dict[Any, Any]) -> Any:
    found = known.get(value)
    number = splat(value) if found is None else found
    if number is None:
        raise NestRefusedError("reads a weight at an index that is not known")
    return number
