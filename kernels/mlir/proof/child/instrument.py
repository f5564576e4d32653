"""Operations added to a payload: errors of roundings (`perturb`), whose effect is allowed.

Monte Carlo arithmetic (Parker, 1997; Denis, de Oliveira Castro and Petit, Verificarlo, 2016) finds
how much of a result is rounding by adding random errors to each operation, whatever the program
does. Here each operation that rounds gets an error of one or three units in the last place of its
result, about eight times that of rounding. The error is a hash of the value and of the run.
"""

from math import prod
from typing import Any

import numpy as np
from iree.compiler import ir

from tilewise.kernels.mlir.lowering.apply import run_passes
from tilewise.kernels.mlir.lowering.structure import add_arguments, element_of, function_of, walk
from tilewise.kernels.oracle.operands import Array

EQUAL, UNEQUAL, LESS, UNSIGNED_LESS = 0, 1, 2, 6
"""Predicates of `arith.cmpi`."""
AT_LEAST_OR_NAN, LESS_OR_NAN = 10, 11
"""Predicates of `arith.cmpf`."""
LOWER_LINALG = "builtin.module(func.func(convert-linalg-to-loops))"
"""The pipeline before operations are added to bodies of linalg ops, which verify their own."""


def made(name: str, operands: list[Any], *results: Any, **attributes: Any) -> Any:
    """Return a new operation."""
    return ir.Operation.create(
        name, results=list(results), operands=operands, attributes=attributes or None
    )


def make(name: str, operands: list[Any], result: Any, **attributes: Any) -> Any:
    """Return the result of a new operation."""
    return made(name, operands, result, **attributes).results[0]


def constant(kind: Any, value: float) -> Any:
    """Return a number, in every lane if `kind` is a vector."""
    element = kind.element_type if isinstance(kind, ir.VectorType) else kind
    is_float = isinstance(element, ir.FloatType)
    attribute = (ir.FloatAttr if is_float else ir.IntegerAttr).get(element, value)
    if isinstance(kind, ir.VectorType):
        attribute = ir.DenseElementsAttr.get_splat(kind, attribute)
    return make("arith.constant", [], kind, value=attribute)


def compare(predicate: int, left: Any, right: Any, name: str = "arith.cmpi") -> Any:
    """Return the flags of a comparison of integers, or of floats by `arith.cmpf`."""
    flags = like(left.type, ir.IntegerType.get_signless(1))
    attribute = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), predicate)
    return make(name, [left, right], flags, predicate=attribute)


def any_of(flags: Any) -> Any:
    """Return whether any of a vector's flags is set."""
    if not isinstance(flags.type, ir.VectorType):
        return flags
    flag = flags.type.element_type
    if len(flags.type.shape) != 1:
        line = ir.VectorType.get([prod(flags.type.shape)], flag)
        flags = make("vector.shape_cast", [flags], line)
    return make("vector.reduction", [flags], flag, kind=ir.Attribute.parse("#vector.kind<or>"))


def i64() -> Any:
    """Return the type of a word."""
    return ir.IntegerType.get_signless(64)


def load_word(words: Any, at: int = 0) -> Any:
    """Return a word of a buffer."""
    return make("memref.load", [words, constant(ir.IndexType.get(), at)], i64())


def store_word(value: Any, words: Any, at: int = 0) -> None:
    """Write a word of a buffer."""
    made("memref.store", [value, words, constant(ir.IndexType.get(), at)])


def store_if(flag: Any, value: int, words: Any, at: int = 0) -> None:
    """Write a word of a buffer if a flag is set."""
    chosen = make("arith.select", [flag, constant(i64(), value), load_word(words, at)], i64())
    store_word(chosen, words, at)


def like(kind: Any, element: Any) -> Any:
    """Return a type of `element` with as many lanes as `kind` has."""
    return ir.VectorType.get(kind.shape, element) if isinstance(kind, ir.VectorType) else element


def add_argument(function: Any, kind: str) -> Any:
    """Give a function a last argument; return it."""
    return add_arguments(function, [ir.Type.parse(kind)])[0]


SEEDS = "memref<1xi64>"
_DIALECTS = ("arith.", "math.")
_EXACT = {
    "arith.constant", "arith.negf", "arith.extf", "arith.select", "arith.bitcast",
    "arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf",
    "math.absf", "math.copysign", "math.floor", "math.ceil", "math.trunc", "math.round",
    "math.roundeven",
}  # fmt: skip
_VECTORS = {"vector.contract", "vector.fma", "vector.outerproduct", "vector.reduction",
            "vector.multi_reduction"}  # fmt: skip
_FLOATS = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16}
_INFINITIES = {"f64": 0x7FF << 52, "f32": 0xFF << 23, "f16": 0x1F << 10, "bf16": 0xFF << 7}
LEAST_MOVED = 4  # units above zero, and below infinity


def seeds(runs: int) -> list[Array]:
    """Return the last arguments of so many runs: odd, with 63 random bits, for the hash."""
    drawn = np.random.default_rng(0).integers(0, 1 << 62, (runs, 1), np.int64)
    return list(2 * drawn + 1)


def computed_in(module: Any) -> set[str]:
    """Return the float types whose rounding affects a module's results."""
    kinds = (r.type for op, _ in walk(module.operation) if _rounds(op) for r in op.results)
    return {element_of(kind) for kind in kinds} & set(_FLOATS)


def perturb(module: Any, element: str | None = None) -> None:
    """Give the only function a seed as last argument, and each rounding operation an error.

    `module` is on buffers and changed; `element` restricts the errors to one float type.
    """
    run_passes(module, LOWER_LINALG)
    function = function_of(module)
    rounding = [op for op, _ in walk(function) if _rounds(op)]
    with ir.Location.unknown():
        argument = add_argument(function, SEEDS)
        with ir.InsertionPoint.at_block_begin(function.regions[0].blocks[0]):
            seed = load_word(argument)
        for number, operation in enumerate(rounding):
            with ir.InsertionPoint.after(operation):
                for result in operation.results:
                    if _width(result.type) and element in (None, element_of(result.type)):
                        _add_error(result, seed, 2 * number + 1)


def width_of(element: str) -> int:
    """Return the bits of a float type; 0 for any other type."""
    return _FLOATS.get(element, 0)


def _rounds(operation: Any) -> bool:
    name = operation.name
    named = name.startswith(_DIALECTS) and name not in _EXACT
    return (named or name in _VECTORS) and any(_width(r.type) for r in operation.results)


def _width(kind: Any) -> int:
    """Return the bits of a float or of a vector's floats; 0 for anything else."""
    return width_of(element_of(kind))


def _add_error(value: Any, seed: Any, factor: int) -> None:
    """Move a float, or each of a vector, by 1 or 3 units in its last place wherever it is used.

    Zeros, infinities, NaNs and values within 4 units of them stay. `factor` is odd, and differs
    between operations.
    """
    kind, width = value.type, _width(value.type)
    words = like(kind, ir.IntegerType.get_signless(width))
    bits = make("arith.bitcast", [value], words)
    hashed = make("arith.muli", [bits, _multiplier(seed, factor, words, width)], words)
    upper = make("arith.shrsi", [hashed, constant(words, width - 2)], words)  # -2 to 1
    one = constant(words, 1)
    units = make("arith.ori", [make("arith.shli", [upper, one], words), one], words)
    magnitude = make("arith.andi", [bits, constant(words, (1 << (width - 1)) - 1)], words)
    above = make("arith.subi", [magnitude, constant(words, LEAST_MOVED)], words)
    below = constant(words, _INFINITIES[element_of(kind)] - 2 * LEAST_MOVED)
    is_moved = compare(UNSIGNED_LESS, above, below)
    steps = make("arith.select", [is_moved, units, constant(words, 0)], words)
    moved = make("arith.bitcast", [make("arith.addi", [bits, steps], words)], kind)
    value.replace_all_uses_except(moved, [bits.owner.operation])


def _multiplier(seed: Any, factor: int, words: Any, width: int) -> Any:
    """Return the seed times the factor, in all lanes of `words`."""
    product = make("arith.muli", [seed, constant(i64(), factor)], i64())
    narrow = ir.IntegerType.get_signless(width)
    if width < 64:
        product = make("arith.trunci", [product], narrow)
    return product if words == narrow else make("vector.broadcast", [product], words)
