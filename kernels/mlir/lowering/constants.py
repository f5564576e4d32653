"""Floating-point constants of LLVM IR text, in the form that every LLVM reads.

MLIR's LLVM is newer than the one that compiles. It writes infinities and NaNs by name
(`-inf`, `+nan(0x1)`), other values as bits (`f0x3EAAAAAB`), and as decimals whatever six digits
tell apart in the constant's own type. An older parser takes decimals that a double holds exactly,
and hexadecimals: 64 bits for `float` and `double`, 16 bits for the two halves.
"""

import re
import struct
from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """A binary floating-point format of IEEE's kind.

    Attributes:
        bits: of the whole.
        mantissa: bits of the fraction.
        prefix: of a hexadecimal constant of 16 bits; empty where it is written as a double.
    """

    bits: int
    mantissa: int
    prefix: str = ""

    @property
    def infinity(self) -> int:
        """The bits of positive infinity."""
        return (1 << (self.bits - 1)) - (1 << self.mantissa)

    @property
    def quiet(self) -> int:
        """The bit that makes a NaN quiet."""
        return 1 << (self.mantissa - 1)


FORMATS = {
    "half": Format(16, 10, "H"),
    "bfloat": Format(16, 7, "R"),
    "float": Format(32, 23),
    "double": Format(64, 52),
}
_DOUBLE = FORMATS["double"]
_TOKENS = re.compile(
    r"""\b(?P<type>half|bfloat|float|double)\b
    |(?<![\w.%@"$])(?:
        f0x(?P<bits>[0-9A-F]+)
        |0x(?P<hex>[HR]?[0-9A-F]+)
        |(?P<sign>[+-])(?P<name>inf|qnan|s?nan)(?:\(0x(?P<payload>[0-9a-fA-F]+)\))?
        |(?P<decimal>[+-]?\d+\.\d*(?:e[+-]?\d+)?)
    )(?![\w.])""",
    re.VERBOSE,
)


def readable_constants(text: str) -> str:
    """The module with every floating-point constant in hexadecimal, bit for bit the same.

    A constant has the type that was named last on its line.
    """
    return "\n".join(_line(line) for line in text.split("\n"))


def _line(line: str) -> str:
    kind: Format | None = None

    def rewritten(found: re.Match[str]) -> str:
        nonlocal kind
        if found["type"]:
            kind = FORMATS[found["type"]]
        elif kind is not None and not found["hex"]:
            return _hexadecimal(_bits(found, kind), kind)
        return found[0]

    return _TOKENS.sub(rewritten, line)


def _bits(found: re.Match[str], kind: Format) -> int:
    """The bits of a constant in its own format."""
    if found["bits"]:
        return int(found["bits"], 16)
    if found["decimal"]:
        return _nearest(float(found["decimal"]), kind)
    fraction = int(found["payload"] or "0", 16)
    if found["name"] in ("qnan", "nan"):
        fraction |= kind.quiet
    return (found["sign"] == "-") << (kind.bits - 1) | kind.infinity | fraction


def _nearest(value: float, kind: Format) -> int:
    """The bits of the number of a format that is nearest to `value`."""
    if kind.bits == 16 and kind.mantissa == 7:
        upper, lower = divmod(_nearest(value, FORMATS["float"]), 1 << 16)
        return upper + (lower + (upper & 1) > 1 << 15)
    code = {16: ">e", 32: ">f", 64: ">d"}[kind.bits]
    return int.from_bytes(struct.pack(code, value), "big")


def _hexadecimal(bits: int, kind: Format) -> str:
    if kind.prefix:
        return f"0x{kind.prefix}{bits:04X}"
    return f"0x{_as_double(bits, kind):016X}"


def _as_double(bits: int, kind: Format) -> int:
    """The bits of the same number, infinity or NaN as a double."""
    if kind.bits == _DOUBLE.bits:
        return bits
    magnitude = bits & ~(1 << (kind.bits - 1))
    if magnitude <= kind.infinity:
        (value,) = struct.unpack(">f", bits.to_bytes(4, "big"))
        return int.from_bytes(struct.pack(">d", value), "big")
    sign = bits >> (kind.bits - 1) << (_DOUBLE.bits - 1)
    fraction = (magnitude - kind.infinity) << (_DOUBLE.mantissa - kind.mantissa)
    return sign | _DOUBLE.infinity | fraction
