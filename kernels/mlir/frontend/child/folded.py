"""The values of elementwise ops on constants, such as those that dequantise weights."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.kernels.mlir.frontend.child.values import Structured, element, rank, splat
from tilewise.kernels.mlir.frontend.nest import Axis, NestRefusedError

Array = NDArray[Any]
_TYPES: dict[str, type[Any]] = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16,
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
}  # fmt: skip


def _unsigned(array: Array) -> Array:
    return array.view(f"u{array.dtype.itemsize}")


_OPERATIONS: dict[str, Callable[..., Array]] = {
    "arith.addf": np.add, "arith.addi": np.add,
    "arith.subf": np.subtract, "arith.subi": np.subtract,
    "arith.mulf": np.multiply, "arith.muli": np.multiply, "arith.divf": np.divide,
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
    return op.is_parallel and op.is_identity(len(op.inputs)) and all(
        one.name == "arith.constant"
        or (one.name in _OPERATIONS
        and all(element(value) in _TYPES for value in (*one.operands, one.results[0])))
        for one in body
    )  # fmt: skip


def folded(op: Structured, value: Callable[[Any], Array], shape: Sequence[int]) -> Array:
    """Return the elements of the result of a foldable op, from the `value` of each input."""
    inputs = zip(op.inputs, op.maps[:-1], strict=True)
    known = dict(zip(
        op.body.arguments,
        (_over_loops(value(one), axes, len(shape)) if rank(one) else _scalar(one)
         for one, axes in inputs),
        strict=False,
    ))  # fmt: skip
    *body, last = (view.operation for view in op.body.operations)
    with np.errstate(all="ignore"):
        for one in body:
            if one.name == "arith.constant":
                continue
            of = (known[given] if given in known else _scalar(given) for given in one.operands)
            made = _OPERATIONS[one.name](*of)
            known[one.results[0]] = made.astype(_TYPES[element(one.results[0])])
    left = last.operands[0]
    return np.broadcast_to(known[left] if left in known else _scalar(left), shape)


def _scalar(value: Any) -> Array:
    number = splat(value)
    if number is None:
        raise NestRefusedError("reads a weight that is computed from no constant")
    return np.asarray(number).astype(_TYPES[element(value)])


def _over_loops(array: Array, read: tuple[Axis, ...] | None, loops: int) -> Array:
    """Return an array with an axis for each loop, of length one where it is not read."""
    if read is None or any(len(axis) > 1 for axis in read):
        raise NestRefusedError("reads a weight at an index that is not followed")
    array = array[tuple(slice(None) if axis else 0 for axis in read)]
    dims = [axis[0][0] for axis in read if axis]
    array = array.transpose(np.argsort(dims)) if dims else array
    return array.reshape([array.shape[sorted(dims).index(i)] if i in dims else 1
                          for i in range(loops)])  # fmt: skip
