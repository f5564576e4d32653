"""Functions of a module made callable: what is left of tensors bufferised, lowered, compiled."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from iree.compiler import ir
from iree.compiler.passmanager import PassManager

from tilewise.kernels.mlir.lowering.apply import Diagnostics, StageError
from tilewise.kernels.mlir.lowering.jit import Call, Compiled, compile_ir
from tilewise.kernels.mlir.lowering.packs_to_loops import lower_packs
from tilewise.kernels.mlir.lowering.signature import (
    Signature,
    entry_of,
    poisoned,
    require_same,
    signature_of,
)
from tilewise.kernels.mlir.lowering.structure import walk
from tilewise.kernels.mlir.lowering.to_llvm import Scratch, lower
from tilewise.kernels.oracle.operands import Array, empty_aligned

INLINE = "builtin.module(inline,symbol-dce)"
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
        likes = [np.empty(result.shape, result.dtype) for result in self.signature.results]
        call = Call(self.compiled, [*arrays, *more, *poisoned(self.scratch)], *likes)
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
        """What the last run left: the values returned and every argument but writable ones.

        Where nothing is returned the arguments are the result, writable or not.
        """
        returned = self.signature.results
        found = [
            Result(
                "the result" if len(returned) == 1 else f"result {number}",
                one.element,
                self.call.returned(number),
            )
            for number, one in enumerate(returned)
        ]
        for number, (kind, array) in enumerate(
            zip(self.signature.arguments, self.arguments, strict=True)
        ):
            if not returned or not kind.writable:
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
    """Compile the function of a module with those that it calls; the module is changed.

    Args:
        module: on tensors or buffers.
        signature: of the payload's function.
        diagnostics: of the context.
        changes: what is done to the module on buffers before it is lowered.
        effort: of LLVM, as `compile_ir` takes it.

    Raises:
        StageError: `lower` or `compile`; `verify` where its arguments are not the payload's.
    """
    _inline(module, diagnostics)
    bufferize(module, diagnostics)
    require_same(signature, signature_of(module))
    lower_packs(module)
    for change in changes:
        change(module)
    text, scratch = lower(module, diagnostics)
    return Function(signature, compile_ir(text, signature.name, effort), scratch)


def _inline(module: Any, diagnostics: Diagnostics) -> None:
    """Leave one function in a module: what it calls becomes part of it.

    Raises:
        StageError: `lower`; a call is recursive, or of a function that is only declared.
    """
    if sum(op.operation.name == "func.func" for op in module.body.operations) < 2:
        return
    entry_of(module).attributes["sym_visibility"] = ir.StringAttr.get("public")
    try:
        PassManager.parse(INLINE).run(module.operation)
    except (ir.MLIRError, ValueError) as error:
        raise StageError("lower", diagnostics.explain(error)) from error
    for operation, _ in walk(module.operation):
        if operation.name == "func.call":
            raise StageError("lower", f"a call that cannot be made part of its caller: {operation}")


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
