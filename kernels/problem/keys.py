"""Declarations of the values of a problem's keys: element types and epilogues."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]


@dataclass(frozen=True)
class DType:
    """One value of a problem's `dtype` key, by the contract's name, also MLIR's.

    `accumulator` is the type of sums and results; arithmetic on integers wraps.
    """

    name: str
    bytes: int
    accumulator: str
    accumulator_bytes: int
    is_float: bool


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        DType("f32", 4, "f32", 4, True),
        DType("f64", 8, "f64", 8, True),
        DType("i32", 4, "i32", 4, False),
        DType("bf16", 2, "f32", 4, True),
        DType("f16", 2, "f32", 4, True),
        DType("i8", 1, "i32", 4, False),
        DType("u8", 1, "i32", 4, False),
    )
}


STORED: dict[str, DType] = DTYPES | {
    "i16": DType("i16", 2, "i32", 4, False),
    "i4": DType("i4", 1, "i32", 4, False),
    "u4": DType("u4", 1, "i32", 4, False),
}
"""All types of operands, results and packed factors; i16 is a byte less a zero point.

Arrays of i4 and u4 have one value in a byte."""

FACTORS = (*DTYPES, "i16", "u8*i8", "i8*u8")
"""Types of two factors as they are multiplied: one for both, or those of A and B."""

WEIGHTS, SMALL_WEIGHTS = "weights", "weights of 4 bits"
"""Those of a float and quantised weights, which instructions multiply as bytes or as bf16."""

SIGNIFICAND_BITS = {"bf16": 8, "f16": 11}
"""Of the types that results are rounded to, the leading one included."""


@dataclass(frozen=True)
class Epilogue:
    """One value of a problem's `epilogue` key: a function of each sum, bias and addition included.

    Attributes:
        apply: the function of an array, in NumPy, at the array's precision.
        ceiling: the upper limit, applied after relu; None for no limit.
        needs_float: whether integers are not supported.
        is_smooth: whether it is computed in f32 by polynomials, of sums in f32 alone.
        slope: the largest magnitude of its derivative, by which errors of sums grow.
    """

    name: str
    apply: Callable[["Array"], "Array"] = field(repr=False)
    is_relu: bool = False
    ceiling: int | None = None
    needs_float: bool = False
    is_smooth: bool = False
    slope: float = 1.0


def _gelu(sums: "Array") -> "Array":
    import numpy as np

    erf = np.asarray(np.frompyfunc(math.erf, 1, 1)(sums / math.sqrt(2)), sums.dtype)
    return np.asarray(sums * (0.5 + 0.5 * erf))


def _gelu_tanh(sums: "Array") -> "Array":
    import numpy as np

    inner = math.sqrt(2 / math.pi) * (sums + 0.044715 * sums**3)
    return np.asarray(0.5 * sums * (1 + np.tanh(inner)))


def _silu(sums: "Array") -> "Array":
    import numpy as np

    return np.asarray(0.5 * sums * (1 + np.tanh(sums / 2)))  # x / (1 + exp(-x)), without overflow


EPILOGUES: dict[str, Epilogue] = {
    e.name: e
    for e in (
        Epilogue("none", lambda sums: sums),
        Epilogue("relu", lambda sums: sums.clip(0), is_relu=True),
        Epilogue("relu6", lambda sums: sums.clip(0, 6), True, ceiling=6, needs_float=True),
        Epilogue("gelu", _gelu, needs_float=True, is_smooth=True, slope=1.13),
        Epilogue("gelu_tanh", _gelu_tanh, needs_float=True, is_smooth=True, slope=1.13),
        Epilogue("silu", _silu, needs_float=True, is_smooth=True, slope=1.1),
    )
}

BF16X3 = "bf16x3"
"""The accuracy of products of f32 by three products of bf16: high parts, and high with low ones."""
