"""A payload whose every rounding is off by more: how far its results move is what is allowed.

Monte Carlo arithmetic (Parker, 1997; Denis, de Oliveira Castro and Petit, Verificarlo, 2016)
finds how much of a result is rounding by adding random errors to each operation, whatever the
program is: chains, loops, functions that no bound is known of. Here each operation that
rounds gets an error of one or three units in the last place of the type in which it computes,
that is, of some eight times what rounding does. The error is a hash of the value and of the run.
"""

from typing import Any

import numpy as np
from iree.compiler import ir
from iree.compiler.passmanager import PassManager

from kernels.mlir.lowering.structure import walk
from kernels.mlir.lowering.to_llvm import function_of
from kernels.oracle.operands import Array

SEEDS = "memref<1xi64>"
_LOOPS = "builtin.module(func.func(convert-linalg-to-loops))"
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


def seeds(runs: int) -> list[Array]:
    """The last arguments of so many runs: odd, and of 63 random bits, as the hash wants them."""
    drawn = np.random.default_rng(0).integers(0, 1 << 62, (runs, 1), np.int64)
    return list(2 * drawn + 1)


def perturb(module: Any) -> None:
    """Give the only function a last argument, its seed, and each rounding operation its error.

    Args:
        module: on buffers; it is changed.
    """
    # The ops of linalg check what is in their bodies.
    PassManager.parse(_LOOPS).run(module.operation)
    function = function_of(module)
    block = function.regions[0].blocks[0]
    rounding = [op for op, _ in walk(function) if _rounds(op)]
    with ir.Location.unknown():
        argument = block.add_argument(ir.Type.parse(SEEDS), ir.Location.unknown())
        _extend(function, argument.type)
        with ir.InsertionPoint.at_block_begin(block):
            zero = _constant(ir.IndexType.get(), 0)
            seed = _op("memref.load", [argument, zero], ir.IntegerType.get_signless(64))
        for number, operation in enumerate(rounding):
            with ir.InsertionPoint.after(operation):
                for result in operation.results:
                    if _width(result.type):
                        _add_error(result, seed, 2 * number + 1)


def _rounds(operation: Any) -> bool:
    name = operation.name
    named = name.startswith(_DIALECTS) and name not in _EXACT
    return (named or name in _VECTORS) and any(_width(r.type) for r in operation.results)


def _width(kind: Any) -> int:
    """Bits of a float or of a vector's floats; 0 for anything else."""
    element = ir.VectorType(kind).element_type if isinstance(kind, ir.VectorType) else kind
    return _FLOATS.get(str(element), 0)


def _extend(function: Any, kind: Any) -> None:
    signature = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    function.attributes["function_type"] = ir.TypeAttr.get(
        ir.FunctionType.get([*signature.inputs, kind], signature.results)
    )
    if "arg_attrs" in function.attributes:
        del function.attributes["arg_attrs"]


def _add_error(value: Any, seed: Any, factor: int) -> None:
    """Multiply a float by 1 plus -3, -1, 1 or 3 units in the last place of 1, wherever it is used.

    Args:
        value: a float, or a vector of floats.
        seed: of the run, odd.
        factor: odd, and another one for each operation.
    """
    kind, width = value.type, _width(value.type)
    words = _like(kind, ir.IntegerType.get_signless(width))
    bits = _op("arith.bitcast", [value], words)
    hashed = _op("arith.muli", [bits, _multiplier(seed, factor, words, width)], words)
    upper = _op("arith.shrsi", [hashed, _constant(words, width - 2)], words)  # -2 to 1
    one = _constant(words, 1)
    units = _op("arith.ori", [_op("arith.shli", [upper, one], words), one], words)
    # Below 1 the floats lie twice as close.
    below = _op("arith.minsi", [units, _constant(words, 0)], words)
    steps = _op("arith.addi", [units, below], words)
    unity = _op("arith.bitcast", [_one(kind)], words)
    share = _op("arith.bitcast", [_op("arith.addi", [unity, steps], words)], kind)
    reader, moved = _product(value, share)
    value.replace_all_uses_except(moved, [bits.owner.operation, reader])


def _product(value: Any, share: Any) -> tuple[Any, Any]:
    """The op that reads a float to multiply it, and the product; that of bf16 is made in f32.

    A product of two bf16 would be rounded by a function that code in memory does not have.
    """
    kind = value.type
    if "bf16" not in str(kind):
        product = _op("arith.mulf", [value, share], kind)
        return product.owner.operation, product
    wide = _like(kind, ir.F32Type.get())
    widened = [_op("arith.extf", [one], wide) for one in (value, share)]
    product = _op("arith.mulf", widened, wide)
    return widened[0].owner.operation, _op("arith.truncf", [product], kind)


def _multiplier(seed: Any, factor: int, words: Any, width: int) -> Any:
    """The seed times the factor, in all the lanes that `words` has."""
    wide = ir.IntegerType.get_signless(64)
    product = _op("arith.muli", [seed, _constant(wide, factor)], wide)
    narrow = ir.IntegerType.get_signless(width)
    if width < 64:
        product = _op("arith.trunci", [product], narrow)
    return product if words == narrow else _op("vector.broadcast", [product], words)


def _like(kind: Any, element: Any) -> Any:
    """`element`, as often as `kind` has it."""
    return ir.VectorType.get(kind.shape, element) if isinstance(kind, ir.VectorType) else element


def _constant(kind: Any, value: int) -> Any:
    element = kind.element_type if isinstance(kind, ir.VectorType) else kind
    return _splat(kind, ir.IntegerAttr.get(element, value))


def _one(kind: Any) -> Any:
    element = kind.element_type if isinstance(kind, ir.VectorType) else kind
    return _splat(kind, ir.FloatAttr.get(element, 1.0))


def _splat(kind: Any, value: Any) -> Any:
    if isinstance(kind, ir.VectorType):
        value = ir.DenseElementsAttr.get_splat(kind, value)
    return _op("arith.constant", [], kind, value=value)


def _op(name: str, operands: list[Any], result: Any, **attributes: Any) -> Any:
    """The result of a new operation at the insertion point."""
    made = ir.Operation.create(
        name, results=[result], operands=operands, attributes=attributes or None
    )
    return made.results[0]
