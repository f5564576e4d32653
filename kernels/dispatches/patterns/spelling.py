"""The spellings of a problem: what the compilers in front of IREE make of it, and of relu.

IREE's matcher compares a body only if each value that it reads from outside is an operand of some
op of the pattern. The 0 of a relu and the 6 of a relu6 need not be, so a library first moves them
into the body: it replaces the op by a call of a function, and inlines that.
"""

from dataclasses import dataclass, replace
from typing import Literal

from tilewise.kernels.dispatches.patterns.graph import Inner


@dataclass(frozen=True)
class Spelling:
    """How one compiler writes a problem, as IREE has it before optimisation.

    Attributes:
        attributes: type of strides and dilations.
        transposes: `maps` of the product, `linalg.transpose`, or a `generic` that copies, which
            also turns all convolutions into nhwc_hwcf.
        bias: `joined` with relu, added as a `vector` or a broadcast `tensor`, or the `init`.
        relu: by maximum, or by compare and select.
        relu6: both limits in one `body`, in two `passes`, or in two whose second limit (`scalar`)
            or both limits (`scalars`) are operands.
        rounds_apart: whether a result of another type is rounded by an op of its own, also where
            the bias is joined.
    """

    attributes: Literal["tensor", "vector"] = "tensor"
    transposes: Literal["maps", "transpose", "generic"] = "maps"
    bias: Literal["joined", "vector", "tensor", "init"] = "joined"
    relu: Literal["maximum", "select"] = "maximum"
    relu6: Literal["body", "passes", "scalar", "scalars"] = "body"
    rounds_apart: bool = False


SPELLINGS = (
    Spelling(),  # linalg
    Spelling(bias="vector"),  # linalg, an op for each step
    Spelling("vector", "transpose", "vector", "select"),  # torch-mlir, linear
    Spelling("vector", "transpose", "init", "select"),  # torch-mlir, convolution
    Spelling("tensor", "generic", "tensor", "maximum"),  # StableHLO
)
"""To see how a frontend's module looks here, run `iree-compile --compile-to=preprocessing`."""

_STABLEHLO, _TORCH = SPELLINGS[-1], SPELLINGS[2:4]
OF_RELU6 = (
    *(replace(one, relu6="passes") for one in (SPELLINGS[1], _STABLEHLO)),
    *(replace(one, relu6="scalar") for one in _TORCH),
    *(replace(one, relu6="scalars") for one in _TORCH),
)
"""Further spellings of PyTorch's `relu6` and `hardtanh`; its `clamp` is a body."""

OF_ROUNDING = (replace(SPELLINGS[0], rounds_apart=True),)
"""Those of results of another type than the sums'."""


PREFIX = "tilewise_relu_"
SIX = 6
LARGEST = int(2.0**128 - 2.0**104)
"""The largest f32: TOSA's relu is a clamp, which also takes the minimum with it."""


@dataclass(frozen=True)
class Limit:
    """One way to limit a scalar at `number`.

    `lines` compute `$R` from `%x` and `%y`, both the value, and `$N`, the number; `$T` is the type.
    """

    name: str
    arguments: tuple[str, ...]
    lines: tuple[str, ...]
    number: int = 0

    @property
    def result(self) -> str:
        """The value that its ops make."""
        return "%l" if self.number else "%r"

    def inner(self, element: str) -> Inner:
        """Return its ops as one of a body, with the number."""
        arguments, text = dict.fromkeys(self.arguments, element), "\n".join(self.body(element))
        return Inner(f"{PREFIX}{self.name}_{element}", arguments, text, self.result, element)

    def lines_for(self, value: str, element: str) -> list[str]:
        """Return the ops that limit a value."""
        return [line.replace("%x", value).replace("%y", value) for line in self.body(element)]

    def body(self, element: str) -> list[str]:
        """Return the ops with type and number filled in."""
        number = {0: "%zero", SIX: "%six"}.get(self.number, "%largest")
        written = str(self.number) if element[0] == "i" else f"{self.number}.0"
        lines = [f"$N = arith.constant {written} : $T", *self.lines]
        values = {"$N": number, "$R": self.result, "$T": element}
        for placeholder, value in values.items():
            lines = [line.replace(placeholder, value) for line in lines]
        return lines


def _named(op: str, number: int = 0, *, name: str = "") -> Limit:
    return Limit(name or op, ("%x",), (f"$R = arith.{op} %x, $N : $T",), number)


_KEEP, _REPLACE = "%y, $N", "$N, %y"
"""What a select takes where the value compares so, and elsewhere: the value or the number."""


def _selected(compare: str, chosen: str, number: int = 0) -> Limit:
    name = compare.partition(" ")[2] + "_six" * (number == SIX)
    lines = (
        f"%q{number} = arith.{compare}, %x, $N : $T",
        f"$R = arith.select %q{number}, {chosen} : $T",
    )
    return Limit(name, ("%x", "%y"), lines, number)


MAXIMUM, SELECT = _named("maximumf"), _selected("cmpf ugt", _KEEP)
CLAMP = _selected("cmpf ult", _REPLACE)
OF_FLOATS = (MAXIMUM, _named("maxnumf"), SELECT, _selected("cmpf ogt", _KEEP), CLAMP)
MAXIMUM_INTEGER, SELECT_INTEGER = _named("maxsi"), _selected("cmpi sgt", _KEEP)
OF_INTEGERS = (MAXIMUM_INTEGER, SELECT_INTEGER)
MINIMUM, CLAMP_SIX = _named("minimumf", SIX), _selected("cmpf ugt", _REPLACE, SIX)
CEILINGS = (MINIMUM, _named("minnumf", SIX), _selected("cmpf ult", _KEEP, SIX), CLAMP_SIX)
UNLIMITED = _named("minimumf", LARGEST, name="minimumf_largest")


def limits_of(element: str) -> tuple[Limit, ...]:
    """Return the limits that exist for a type."""
    if element[0] == "i":
        return OF_INTEGERS
    return (*OF_FLOATS, *CEILINGS, *([UNLIMITED] if element == "f32" else []))
