"""bf16 in LLVM IR as words of 16 bits, widened to f32 by a shift.

A bf16 is the upper half of an f32. LLVM knows that, but without instructions on bf16 it
takes vectors of them apart, element by element, even to copy them: a copy of 32 became 64
moves, and a script with many of them took 12 seconds to compile. Words are copied whole.
"""

import re

_WIDENING = re.compile(
    r"^(\s*)%(\w+) = fpext (bfloat|<(\d+) x bfloat>) (\S+) to (?:float|<\d+ x float>)", re.MULTILINE
)
_CONSTANT = re.compile(r"\b0xR([0-9A-F]{4})\b")
_COMPUTED = re.compile(r"= (?!fpext)(?:f[a-z]+|[su]itofp|(?:tail )?call)\b.*\bbfloat\b")


def bf16_as_words(text: str) -> str:
    """The module with every bf16 as an i16; as it was where it computes on bf16 itself.

    Its constants are in hexadecimal (`readable_constants`).
    """
    if "bfloat" not in text or _COMPUTED.search(text):
        return text
    text = _WIDENING.sub(_widened, text)
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
