"""Declarations of the values of a problem's keys: element types and epilogues."""

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
    )
}


SIGNIFICAND_BITS = {"bf16": 8, "f16": 11}
"""Of the types that results are rounded to, the leading one included."""


@dataclass(frozen=True)
class Epilogue:
    """One value of a problem's `epilogue` key: a function of each sum, bias included.

    Attributes:
        apply: the function of an array, in NumPy, at the array's precision.
        ceiling: the upper limit, applied after relu; None for no limit.
        needs_float: whether integers are not supported.
    """

    name: str
    apply: Callable[["Array"], "Array"] = field(repr=False)
    is_relu: bool = False
    ceiling: int | None = None
    needs_float: bool = False


EPILOGUES: dict[str, Epilogue] = {
    e.name: e
    for e in (
        Epilogue("none", lambda sums: sums),
        Epilogue("relu", lambda sums: sums.clip(0), is_relu=True),
        Epilogue("relu6", lambda sums: sums.clip(0, 6), True, ceiling=6, needs_float=True),
    )
}
