"""Element types: what a problem's `dtype` implies for operands and accumulator."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DType:
    """One value of a problem's `dtype` key.

    Attributes:
        name: the contract's name, also MLIR's.
        bytes: size of an input element.
        accumulator: name of the accumulator's and the output's type.
        accumulator_bytes: size of an output element.
        is_float: whether arithmetic rounds (integers wrap instead).
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
