"""bf16 in LLVM IR as words of 16 bits: widened to f32 by a shift, rounded from it by an addition.

A bf16 is the upper half of an f32. LLVM knows that, but without instructions on bf16 it
takes vectors of them apart, element by element, even to copy them: a copy of 32 became 64
moves, and a script with many of them took 12 seconds to compile. Words are copied whole. To
round, it calls a function of a library that code in memory does not have. So before that, in MLIR,
every operation that computes in bf16 computes in f32 and rounds its result (`compute_in_f32`).
"""

import re
from typing import Any

from iree.compiler import ir

from tilewise.kernels.mlir.lowering.apply import StageError

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
_COMPUTING = ("arith.", "math.")
_VECTORS = {"vector.contract", "vector.fma", "vector.outerproduct", "vector.reduction",
            "vector.multi_reduction", "vector.scan"}  # fmt: skip
_AS_BITS = {"arith.constant", "arith.bitcast", "arith.select"}
_CASTS = {"arith.extf", "arith.truncf"}


def compute_in_f32(operations: list[Any]) -> None:
    """Make those operations on bf16 ones on f32, with operands widened and results rounded.

    Each result is rounded to bf16 at once, as the operation's definition says. Conversions between
    f64 and a 16-bit float go through f32: processors and LLVM lack them.

    Raises:
        StageError: `lower`; one is inside `vector.mask`, which holds a single operation.
    """
    for operation in operations:
        name = operation.name
        if name in _CASTS:
            _cast_by_f32(operation)
        elif name not in _AS_BITS and (name.startswith(_COMPUTING) or name in _VECTORS):
            _compute_in_f32(operation)


def _compute_in_f32(operation: Any) -> None:
    values = [*operation.operands, *operation.results]
    if not any(_element(value.type) == "bf16" for value in values):
        return
    if operation.parent.operation.name == "vector.mask":
        raise StageError(
            "lower",
            f"cannot compute in bf16 under a mask; vectorize without vector_sizes: {operation}",
        )
    with ir.InsertionPoint(operation), operation.location:
        operands = [
            _cast("arith.extf", one, "f32") if _element(one.type) == "bf16" else one
            for one in operation.operands
        ]
        kinds = [
            _of_element(one.type, "f32") if _element(one.type) == "bf16" else one.type
            for one in operation.results
        ]
        attributes = {name: operation.attributes[name] for name in operation.attributes}
        wide = ir.Operation.create(
            operation.name, results=kinds, operands=operands, attributes=attributes
        )
        for old, new in zip(operation.results, wide.results, strict=True):
            is_rounded = old.type != new.type
            old.replace_all_uses_with(_cast("arith.truncf", new, "bf16") if is_rounded else new)
    operation.erase()


def _cast_by_f32(operation: Any) -> None:
    value, result = operation.operands[0], operation.results[0]
    if {_element(value.type), _element(result.type)} not in ({"bf16", "f64"}, {"f16", "f64"}):
        return
    with ir.InsertionPoint(operation), operation.location:
        narrower = _cast(operation.name, value, "f32")
        result.replace_all_uses_with(_cast(operation.name, narrower, _element(result.type)))
    operation.erase()


def _cast(name: str, value: Any, element: str) -> Any:
    kind = _of_element(value.type, element)
    return ir.Operation.create(name, results=[kind], operands=[value]).results[0]


def _element(kind: Any) -> str:
    return str(kind.element_type if isinstance(kind, ir.VectorType) else kind)


def _of_element(kind: Any, element: str) -> Any:
    """A type like `kind`, of another element type."""
    wanted = ir.Type.parse(element)
    if isinstance(kind, ir.VectorType):
        return ir.VectorType.get(kind.shape, wanted, scalable=kind.scalable_dims)
    return wanted


def bf16_as_words(text: str) -> str:
    """The module with every bf16 as an i16.

    Its constants are in hexadecimal (`readable_constants`).

    Raises:
        StageError: `lower`; the module computes in bf16, which no library is there for.
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
    """An integer to f32, and from there to bf16, which `_rounded` spells out."""
    indent, name, converted, lanes = found.groups()
    kinds = "bfloat", "float"
    narrow, wide = (one if lanes is None else f"<{lanes} x {one}>" for one in kinds)
    return (
        f"{indent}%whole.{name} = {converted} to {wide}\n"
        f"{indent}%{name} = fptrunc {wide} %whole.{name} to {narrow}"
    )


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
