"""The spellings of a problem: what compilers in front of IREE make of it, and of relu.

IREE's matcher compares a body only if all that it reads from outside is an operand of some op of
the pattern, which the 0 of a relu need not be. So a library first gives each relu a 0 of its own,
inside of the body: it puts a call of a function there, and inlines that. The same holds for the 6.
"""

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class Spelling:
    """How one compiler says a problem, as IREE has it before it begins to optimise.

    Attributes:
        attributes: the type of the lists of strides and dilations.
        transposes: how a matrix is transposed: by the product's maps, by `linalg.transpose`, or by
            a `linalg.generic` that copies. The last one also gives convolutions the layout
            nhwc_hwcf, whatever they had.
        bias: `joined` with relu in one op, `vector` added by an op of its own, `tensor` (the same,
            broadcast before), or `init`: what the sum begins with.
        relu: the larger of a value and 0, or chosen by a comparison.
        relu6: `body`, both limits in one op; `passes`, in two; `scalar`, in two, of which the
            second reads its 6 as an operand; `scalars`, where both do.
    """

    name: str
    attributes: Literal["tensor", "vector"] = "tensor"
    transposes: Literal["maps", "transpose", "generic"] = "maps"
    bias: Literal["joined", "vector", "tensor", "init"] = "joined"
    relu: Literal["maximum", "select"] = "maximum"
    relu6: Literal["body", "passes", "scalar", "scalars"] = "body"


SPELLINGS = (
    Spelling("linalg"),
    Spelling("linalg, an op for each step", bias="vector"),
    Spelling("torch-mlir, linear", "vector", "transpose", "vector", "select"),
    Spelling("torch-mlir, convolution", "vector", "transpose", "init", "select"),
    Spelling("StableHLO", "tensor", "generic", "tensor", "maximum"),
)
"""Those that are known. What a module of torch-mlir's or StableHLO's is at that point shows
`iree-compile --compile-to=preprocessing`."""

_STABLEHLO, _TORCH = SPELLINGS[-1], SPELLINGS[2:4]
OF_RELU6 = (
    *(replace(one, relu6="passes") for one in (SPELLINGS[1], _STABLEHLO)),
    *(replace(one, relu6="scalar") for one in _TORCH),
    *(replace(one, relu6="scalars") for one in _TORCH),
)
"""Further ones of relu6: those of PyTorch's `relu6` and `hardtanh`; its `clamp` is a body."""


PREFIX = "tilewise_relu_"
SIX = 6
LARGEST = int(2.0**128 - 2.0**104)
"""The largest f32, which TOSA's relu takes the lesser of: it is a clamp, and has two ends."""


@dataclass(frozen=True)
class Limit:
    """One way to cut a scalar off: below 0, or above 6 or the largest number.

    Attributes:
        name: of the way; no two have the same.
        arguments: that the function takes: all are the same value.
        lines: its ops, from `%x`, `%y` and `$N`, the number, to `$R`; `$T` is the type.
        number: at which it cuts.
    """

    name: str
    arguments: tuple[str, ...]
    lines: tuple[str, ...]
    number: int = 0

    @property
    def result(self) -> str:
        """The value that its ops make."""
        return "%l" if self.number else "%r"

    def symbol(self, element: str) -> str:
        """The function's name."""
        return f"{PREFIX}{self.name}_{element}"

    def lines_for(self, value: str, element: str) -> list[str]:
        """The ops that cut a value off."""
        return [line.replace("%x", value).replace("%y", value) for line in self.body(element)]

    def body(self, element: str) -> list[str]:
        """The ops."""
        number = {0: "%zero", SIX: "%six"}.get(self.number, "%largest")
        written = str(self.number) if element[0] == "i" else f"{self.number}.0"
        lines = [f"$N = arith.constant {written} : $T", *self.lines]
        told = {"$N": number, "$R": self.result, "$T": element}
        for placeholder, value in told.items():
            lines = [line.replace(placeholder, value) for line in lines]
        return lines

    def signature(self, element: str) -> str:
        """The function's arguments with their types."""
        return ", ".join(f"{name}: {element}" for name in self.arguments)


def _named(op: str, number: int = 0) -> Limit:
    return Limit(op, ("%x",), (f"$R = arith.{op} %x, $N : $T",), number)


def _kept_where(name: str, compare: str, number: int = 0) -> Limit:
    """The value where it compares so, the number elsewhere."""
    taken = f"%q{number}"
    lines = f"{taken} = arith.{compare}, %x, $N : $T", f"$R = arith.select {taken}, %y, $N : $T"
    return Limit(name, ("%x", "%y"), lines, number)


def _replaced(name: str, compare: str, number: int = 0) -> Limit:
    """The number where the value compares so, the value elsewhere."""
    taken = f"%q{number}"
    lines = f"{taken} = arith.{compare}, %x, $N : $T", f"$R = arith.select {taken}, $N, %y : $T"
    return Limit(name, ("%x", "%y"), lines, number)


MAXIMUM, SELECT, CLAMP = (
    _named("maximumf"),
    _kept_where("ugt", "cmpf ugt"),
    _replaced("ult", "cmpf ult"),
)
OF_FLOATS = (MAXIMUM, _named("maxnumf"), SELECT, _kept_where("ogt", "cmpf ogt"), CLAMP)
MAXIMUM_INTEGER, SELECT_INTEGER = _named("maxsi"), _kept_where("sgt", "cmpi sgt")
OF_INTEGERS = (MAXIMUM_INTEGER, SELECT_INTEGER)
MINIMUM, CLAMP_SIX = _named("minimumf", SIX), _replaced("ugt_six", "cmpf ugt", SIX)
CEILINGS = (MINIMUM, _named("minnumf", SIX), _kept_where("ult_six", "cmpf ult", SIX), CLAMP_SIX)
UNLIMITED = Limit("minimumf_largest", ("%x",), ("$R = arith.minimumf %x, $N : $T",), LARGEST)


def limits_of(element: str) -> tuple[Limit, ...]:
    """The ways that there are for a type."""
    if element[0] == "i":
        return OF_INTEGERS
    return (*OF_FLOATS, *CEILINGS, *([UNLIMITED] if element == "f32" else []))
