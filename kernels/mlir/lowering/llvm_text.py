"""LLVM IR text for the LLVM that compiles, which is older than MLIR's.

MLIR's LLVM writes infinities and NaNs by name (`-inf`, `+nan(0x1)`), other values as bits
(`f0x3EAAAAAB`), or as decimals if six digits identify them in the constant's type. An older parser
takes decimals that a double holds exactly, and hexadecimals: 64 bits for `float` and `double`, 16
bits for the two halves.

bf16 become words of 16 bits, widened to f32 by a shift and rounded by an addition. Without bf16
instructions LLVM takes vectors of them apart element by element, even to copy them (a script with
many copies took 12 seconds to compile), and rounds by a library function that code in memory lacks.

Vectors that leave lanes of a register free become whole registers with masks. LLVM would load a
vector of 14 floats as 8, 4 and 2; a masked register of 16 lanes loads it at once. The other lanes
hold zeros and are not written.
"""

import re
import struct
from dataclasses import dataclass

from tilewise.kernels.mlir.lowering.apply import StageError


@dataclass(frozen=True)
class Format:
    """A binary floating-point format of IEEE's kind.

    `prefix` is that of 16-bit hexadecimal constants; empty if constants are written as doubles.
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
    """Return the module with every floating-point constant in hexadecimal, bit for bit the same.

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
    """Return the bits of a constant in its own format."""
    if found["bits"]:
        return int(found["bits"], 16)
    if found["decimal"]:
        return _nearest(float(found["decimal"]), kind)
    fraction = int(found["payload"] or "0", 16)
    if found["name"] in ("qnan", "nan"):
        fraction |= kind.quiet
    return (found["sign"] == "-") << (kind.bits - 1) | kind.infinity | fraction


def _nearest(value: float, kind: Format) -> int:
    """Return the bits of the number of a format that is nearest to `value`."""
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
    """Return the bits of the same number, infinity or NaN as a double."""
    if kind.bits == _DOUBLE.bits:
        return bits
    magnitude = bits & ~(1 << (kind.bits - 1))
    if magnitude <= kind.infinity:
        (value,) = struct.unpack(">f", bits.to_bytes(4, "big"))
        return int.from_bytes(struct.pack(">d", value), "big")
    sign = bits >> (kind.bits - 1) << (_DOUBLE.bits - 1)
    fraction = (magnitude - kind.infinity) << (_DOUBLE.mantissa - kind.mantissa)
    return sign | _DOUBLE.infinity | fraction


_WIDENING = re.compile(
    r"^(\s*)%(\w+) = fpext (bfloat|<(\d+) x bfloat>) (\S+) to (?:float|<\d+ x float>)", re.MULTILINE
)
_ROUNDING = re.compile(
    r"^(\s*)%(\w+) = fptrunc (float|<(\d+) x float>) (\S+) to (?:bfloat|<\d+ x bfloat>)",
    re.MULTILINE,
)
_FROM_INTEGERS = re.compile(
    r"^(\s*)%(\w+) = ([su]itofp (?:nneg )?(?:i\d+|<(\d+) x i\d+>) \S+) to "
    r"(?:bfloat|<\d+ x bfloat>)",
    re.MULTILINE,
)
_CONSTANT = re.compile(r"\b0xR([0-9A-F]{4})\b")
_COMPUTED = re.compile(
    r"= (?!fpext|fptrunc (?:float|<\d+ x float>))(?:f[a-z]+|(?:tail )?call)\b.*\bbfloat\b"
)
_MOVED = re.compile(r"call [^@]*@llvm\.(?:masked|vector|experimental)\.")
_MOVES = re.compile(r"(@llvm\.(?:masked|vector|experimental)\.[a-z.]+\.)([\w.]*bf16[\w.]*)")


def bf16_as_words(text: str) -> str:
    """Return the module, with hexadecimal constants, with every bf16 as an i16.

    Raise StageError `lower` if it computes in bf16, which needs a library.
    """
    if "bfloat" not in text:
        return text
    text = _MOVES.sub(lambda found: found[1] + found[2].replace("bf16", "i16"), text)
    computed = next((line for line in text.split("\n") if _computes(line)), None)
    if computed is not None:
        raise StageError("lower", f"cannot compute in bf16: {computed.strip()}")
    text = _FROM_INTEGERS.sub(_by_f32, text)
    text = _WIDENING.sub(_widened, text)
    text = _ROUNDING.sub(_rounded, text)
    text = _CONSTANT.sub(lambda found: str(int(found[1], 16)), text)
    return re.sub(r"\bbfloat\b", "i16", text)


def _computes(line: str) -> bool:
    return bool(_COMPUTED.search(line)) and not _MOVED.search(line)


def _by_f32(found: re.Match[str]) -> str:
    """Convert an integer to f32, and from there to bf16, which `_rounded` implements."""
    indent, name, converted, lanes = found.groups()
    kinds = "bfloat", "float"
    narrow, wide = (one if lanes is None else f"<{lanes} x {one}>" for one in kinds)
    return (
        f"{indent}%whole.{name} = {converted} to {wide}\n"
        f"{indent}%{name} = fptrunc {wide} %whole.{name} to {narrow}"
    )


def _widened(found: re.Match[str]) -> str:
    """Widen by a shift; named values keep the numbering of the others."""
    indent, name, narrow, lanes, value = found.groups()
    if lanes is None:
        word, wide, sixteen = "i32", "float", "16"
    else:
        word, wide, sixteen = f"<{lanes} x i32>", f"<{lanes} x float>", "splat (i32 16)"
    return (
        f"{indent}%upper.{name} = zext {narrow} {value} to {word}\n"
        f"{indent}%bits.{name} = shl {word} %upper.{name}, {sixteen}\n"
        f"{indent}%{name} = bitcast {word} %bits.{name} to {wide}"
    )


def _rounded(found: re.Match[str]) -> str:
    """Round to nearest, ties to even; a NaN becomes a quiet NaN."""
    indent, name, kind, lanes, value = found.groups()
    word, flag, narrow = "i32", "i1", "i16"

    def number(one: int) -> str:
        return str(one) if lanes is None else f"splat (i32 {one})"

    if lanes is not None:
        word, flag, narrow = (f"<{lanes} x {one}>" for one in (word, flag, narrow))
    lines = [
        f"%bits.{name} = bitcast {kind} {value} to {word}",
        f"%upper.{name} = lshr {word} %bits.{name}, {number(16)}",
        f"%odd.{name} = and {word} %upper.{name}, {number(1)}",
        f"%half.{name} = add {word} %odd.{name}, {number(0x7FFF)}",
        f"%moved.{name} = add {word} %bits.{name}, %half.{name}",
        f"%near.{name} = lshr {word} %moved.{name}, {number(16)}",
        f"%quiet.{name} = or {word} %upper.{name}, {number(0x40)}",
        f"%nan.{name} = fcmp uno {kind} {value}, {value}",
        f"%kept.{name} = select {flag} %nan.{name}, {word} %quiet.{name}, {word} %near.{name}",
        f"%{name} = trunc {word} %kept.{name} to {narrow}",
    ]
    return "\n".join(f"{indent}{line}" for line in lines)


REGISTER_BITS = 512
_BITS = {"float": 32, "double": 64}  # masks of shuffles are vectors of i32
_VECTOR = re.compile(r"<(\d+) x (float|double)>")
_LANEWISE = re.compile(
    r"^\s*%\S+ = (?:f?(?:add|mul|sub)|phi|extractelement|insertelement) [^<]*<\d+ x \w+>[^<]*$"
)
_LOAD = re.compile(r"^(\s*%\S+ = )load (<\S+ x \w+>), ptr (%\S+), align (\d+)$")
_STORE = re.compile(r"^(\s*)store (<\S+ x \w+>) (%\S+), ptr (%\S+), align (\d+)$")
_SPLAT = re.compile(
    r"^\s*%\S+ = shufflevector (<(\d+) x \w+>) %\S+, \1 poison, <\2 x i32> zeroinitializer$"
)
_INTRINSIC = {"float": "f32", "double": "f64"}


def in_whole_registers(text: str) -> str:
    """Return the module with vectors of more than half a register as whole ones.

    A vector type is only changed if all its uses are loads, stores, sums, products and splats.
    """
    kinds = {found[0]: (int(found[1]), found[2]) for found in _VECTOR.finditer(text)}
    declared = set[str]()
    for kind, (count, element) in kinds.items():
        whole = REGISTER_BITS // _BITS[element]
        if whole // 2 < count < whole and _is_simple(text, kind):
            text = _masked(text, kind, count, whole, element)
            declared |= {f"declare {one}" for one in _declarations(whole, element)}
    return "\n".join([text, *sorted(declared)]) if declared else text


def _is_simple(text: str, kind: str) -> bool:
    patterns = (_LOAD, _STORE, _SPLAT, _LANEWISE)
    # a shuffle names the kind that it makes by its mask alone
    lines = [line for line in text.split("\n") if kind in line or "shufflevector" in line]
    lines = [line for line in lines if not _SPLAT.match(line)]
    return all(any(pattern.match(line) for pattern in patterns) for line in lines)


def _masked(text: str, kind: str, count: int, whole: int, element: str) -> str:
    wide = f"<{whole} x {element}>"
    lanes = ", ".join(f"i1 {'true' if lane < count else 'false'}" for lane in range(whole))
    suffix, mask = _suffix(whole, element), f"<{whole} x i1> <{lanes}>"

    def line(old: str) -> str:
        if kind not in old:
            return old
        if found := _LOAD.match(old):
            name, _, at, align = found.groups()
            return (
                f"{name}call {wide} @llvm.masked.load.{suffix}"
                f"(ptr {at}, i32 {align}, {mask}, {wide} zeroinitializer)"
            )
        if found := _STORE.match(old):
            blank, _, value, at, align = found.groups()
            return (
                f"{blank}call void @llvm.masked.store.{suffix}"
                f"({wide} {value}, ptr {at}, i32 {align}, {mask})"
            )
        return old.replace(kind, wide).replace(f"<{count} x i32> zero", f"<{whole} x i32> zero")

    return "\n".join(line(old) for old in text.split("\n"))


def _suffix(whole: int, element: str) -> str:
    return f"v{whole}{_INTRINSIC[element]}.p0"


def _declarations(whole: int, element: str) -> tuple[str, str]:
    wide, suffix = f"<{whole} x {element}>", _suffix(whole, element)
    return (
        f"{wide} @llvm.masked.load.{suffix}(ptr, i32, <{whole} x i1>, {wide})",
        f"void @llvm.masked.store.{suffix}({wide}, ptr, i32, <{whole} x i1>)",
    )
