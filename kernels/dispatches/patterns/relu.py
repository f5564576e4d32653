"""Relu, and the ceiling of relu6, in the body of an op, each with its number beside it.

IREE's matcher compares a body only if all that it reads from outside is an operand of some op of
the pattern, which the 0 of a relu need not be. So a library first gives each relu a 0 of its own,
inside of the body: it puts a call of a function there, and inlines that. The same holds for the 6.
"""

from dataclasses import dataclass

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


def _chosen(name: str, compare: str, number: int = 0) -> Limit:
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
    _chosen("ugt", "cmpf ugt"),
    _replaced("ult", "cmpf ult"),
)
OF_FLOATS = (MAXIMUM, _named("maxnumf"), SELECT, _chosen("ogt", "cmpf ogt"), CLAMP)
MAXIMUM_INTEGER, SELECT_INTEGER = _named("maxsi"), _chosen("sgt", "cmpi sgt")
OF_INTEGERS = (MAXIMUM_INTEGER, SELECT_INTEGER)
MINIMUM, CLAMP_SIX = _named("minimumf", SIX), _replaced("ugt_six", "cmpf ugt", SIX)
CEILINGS = (MINIMUM, _named("minnumf", SIX), _chosen("ult_six", "cmpf ult", SIX), CLAMP_SIX)
UNLIMITED = Limit("minimumf_largest", ("%x",), ("$R = arith.minimumf %x, $N : $T",), LARGEST)


def limits_of(element: str) -> tuple[Limit, ...]:
    """The ways that there are for a type."""
    if element[0] == "i":
        return OF_INTEGERS
    return (*OF_FLOATS, *CEILINGS, *([UNLIMITED] if element == "f32" else []))
