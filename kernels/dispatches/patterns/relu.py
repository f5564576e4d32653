"""Relu in the body of an op, with its 0 beside it.

IREE's matcher compares a body only if all that it reads from outside is an operand of some op of
the pattern, which the 0 of a relu need not be. So a library first gives each relu a 0 of its own,
inside of the body: it puts a call of a function there, and inlines that.
"""

from dataclasses import dataclass

PREFIX = "tilewise_relu_"


@dataclass(frozen=True)
class Relu:
    """One way to cut a scalar off below zero.

    Attributes:
        name: of the way.
        arguments: that the function takes: all are the same value.
        lines: its ops, from `%x`, `%y` and `%zero` to `%r`; `$T` is the type.
    """

    name: str
    arguments: tuple[str, ...]
    lines: tuple[str, ...]

    def symbol(self, element: str) -> str:
        """The function's name."""
        return f"{PREFIX}{self.name}_{element}"

    def lines_for(self, value: str, element: str) -> list[str]:
        """The ops that make `%r` of a value."""
        return [line.replace("%x", value).replace("%y", value) for line in self.body(element)]

    def body(self, element: str) -> list[str]:
        """The ops."""
        zero = f"%zero = arith.constant {'0' if element[0] == 'i' else '0.0'} : {element}"
        return [zero, *(line.replace("$T", element) for line in self.lines)]

    def signature(self, element: str) -> str:
        """The function's arguments with their types."""
        return ", ".join(f"{name}: {element}" for name in self.arguments)


def _larger(op: str) -> Relu:
    return Relu(op, ("%x",), (f"%r = arith.{op} %x, %zero : $T",))


def _chosen(name: str, compare: str) -> Relu:
    lines = f"%q = arith.{compare}, %x, %zero : $T", "%r = arith.select %q, %y, %zero : $T"
    return Relu(name, ("%x", "%y"), lines)


MAXIMUM, SELECT = _larger("maximumf"), _chosen("ugt", "cmpf ugt")
OF_FLOATS = (MAXIMUM, _larger("maxnumf"), SELECT, _chosen("ogt", "cmpf ogt"))
MAXIMUM_INTEGER, SELECT_INTEGER = _larger("maxsi"), _chosen("sgt", "cmpi sgt")
OF_INTEGERS = (MAXIMUM_INTEGER, SELECT_INTEGER)


def relus_of(element: str) -> tuple[Relu, ...]:
    """The ways that there are for a type."""
    return OF_INTEGERS if element[0] == "i" else OF_FLOATS
