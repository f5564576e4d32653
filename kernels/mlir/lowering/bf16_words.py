"""bf16 in LLVM IR as words of 16 bits: widened to f32 by a shift, rounded from it by an addition.

A bf16 is the upper half of an f32. LLVM knows that, but without instructions on bf16 it
takes vectors of them apart, element by element, even to copy them: a copy of 32 became 64
moves, and a script with many of them took 12 seconds to compile. Words are copied whole. To
round, it calls a function of a library that code in memory does not have.
"""

import re

_WIDENING = re.compile(
    r"^(\s*)%(\w+) = fpext (bfloat|<(\d+) x bfloat>) (\S+) to (?:float|<\d+ x float>)", re.MULTILINE
)
_ROUNDING = re.compile(
    r"^(\s*)%(\w+) = fptrunc (float|<(\d+) x float>) (\S+) to (?:bfloat|<\d+ x bfloat>)",
    re.MULTILINE,
)
_CONSTANT = re.compile(r"\b0xR([0-9A-F]{4})\b")
_COMPUTED = re.compile(
    r"= (?!fpext|fptrunc (?:float|<\d+ x float>))(?:f[a-z]+|[su]itofp|(?:tail )?call)\b.*\bbfloat\b"
)


def bf16_as_words(text: str) -> str:
    """The module with every bf16 as an i16; as it was where it computes on bf16 itself.

    Its constants are in hexadecimal (`readable_constants`).
    """
    if "bfloat" not in text or _COMPUTED.search(text):
        return text
    text = _WIDENING.sub(_widened, text)
    text = _ROUNDING.sub(_rounded, text)
    text = _CONSTANT.sub(lambda found: str(int(found[1], 16)), text)
    return re.sub(r"\bbfloat\b", "i16", text)


def _widened(found: re.Match[str]) -> str:
    """Names of their own for what is between keep the numbers of the others."""
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
    """To the nearest, of two to the even one; a NaN stays one, and quiet."""
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
