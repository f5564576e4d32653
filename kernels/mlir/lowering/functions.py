"""Functions of a module made callable: what is left of tensors bufferised, lowered, compiled."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from iree.compiler import ir
from iree.compiler.passmanager import PassManager

from kernels.mlir.lowering.apply import Diagnostics, StageError
from kernels.mlir.lowering.jit import Call, Compiled, compile_ir
from kernels.mlir.lowering.packs_to_loops import lower_packs
from kernels.mlir.lowering.signature import Signature, poisoned, require_same, signature_of
from kernels.mlir.lowering.to_llvm import Scratch, lower
from kernels.oracle.operands import Array, empty_aligned

BUFFERIZE = (
    "builtin.module(func.func(iree-codegen-decompose-softmax,convert-elementwise-to-linalg),"
    "eliminate-empty-tensors,one-shot-bufferize{bufferize-function-boundaries=1 "
    "function-boundary-type-conversion=identity-layout-map},canonicalize,cse)"
)


@dataclass(frozen=True)
class Function:
    """Machine code of a function, with the memory that it wants besides its arguments."""

    signature: Signature
    compiled: Compiled
    scratch: tuple[Scratch, ...]

    def bind(self, inputs: list[Array], *more: Array) -> "Bound":
        """The function on copies of `inputs`, poisoned scratch, and `more` between them."""
        arrays = [_aligned(array) for array in inputs]
        result = self.signature.result
        like = np.empty(result.shape, result.dtype) if result else None
        call = Call(self.compiled, [*arrays, *more, *poisoned(self.scratch)], like)
        return Bound(self.signature, call, arrays)


@dataclass(frozen=True)
class Bound:
    """A function with its arguments.

    Attributes:
        signature: of the function.
        call: runs it, as often as is asked for.
        arguments: where it reads and writes.
    """

    signature: Signature
    call: Call
    arguments: list[Array]

    def results(self) -> "list[Result]":
        """What the last run left: the value returned and every argument but writable ones.

        Where nothing is returned the arguments are the result, writable or not.
        """
        returned, found = self.signature.result, []
        if returned is not None:
            found.append(Result("the result", returned.element, self.call.returned()))
        for number, (kind, array) in enumerate(
            zip(self.signature.arguments, self.arguments, strict=True)
        ):
            if returned is None or not kind.writable:
                found.append(Result(f"argument {number}", kind.element, array))
        return found


@dataclass(frozen=True)
class Result:
    """An array that a function has written, or should have left alone.

    Attributes:
        name: what it is to the function.
        element: MLIR's name of its element type.
        array: its values.
    """

    name: str
    element: str
    array: Array


def compile_function(
    module: Any,
    signature: Signature,
    diagnostics: Diagnostics,
    *changes: Callable[[Any], None],
    effort: int = 3,
) -> Function:
    """Compile the only function of a module, which is changed.

    Args:
        module: on tensors or buffers.
        signature: of the payload's function.
        diagnostics: of the context.
        changes: what is done to the module on buffers before it is lowered.
        effort: of LLVM, as `compile_ir` takes it.

    Raises:
        StageError: `lower` or `compile`; `verify` where its arguments are not the payload's.
    """
    bufferize(module, diagnostics)
    require_same(signature, signature_of(module))
    lower_packs(module)
    for change in changes:
        change(module)
    text, scratch = lower(module, diagnostics)
    return Function(signature, compile_ir(text, signature.name, effort), scratch)


def bufferize(module: Any, diagnostics: Diagnostics) -> None:
    """Turn the tensors that a script has left into buffers.

    Raises:
        StageError: `lower`.
    """
    if "tensor<" not in str(module):
        return
    try:
        PassManager.parse(BUFFERIZE).run(module.operation)
    except (ir.MLIRError, ValueError) as error:
        raise StageError("lower", diagnostics.explain(error)) from error


def _aligned(array: Array) -> Array:
    """A copy that starts on a cache line."""
    copy = empty_aligned(array.shape, array.dtype.type)
    copy[...] = array
    return copy
