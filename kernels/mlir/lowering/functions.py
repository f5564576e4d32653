"""Functions of a module made callable: remaining tensors bufferised, lowered, compiled."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from iree.compiler import ir

from tilewise.kernels.mlir.lowering.apply import Diagnostics, StageError, run_passes
from tilewise.kernels.mlir.lowering.jit import LoadedCode, RepeatedCall, compile_ir
from tilewise.kernels.mlir.lowering.linalg_ops import lower_packs
from tilewise.kernels.mlir.lowering.structure import definitions, walk
from tilewise.kernels.mlir.lowering.to_llvm import ScratchBuffer, lower
from tilewise.kernels.oracle.operands import NUMPY_TYPES, Array, empty_aligned, poison
from tilewise.kernels.problem import DTYPES

TYPES: dict[str, type] = {  # of MLIR's tensors, whose integers have no sign
    name: NUMPY_TYPES[name] for name in DTYPES if not name.startswith("u")
}
TYPES |= {"i16": np.int16, "i64": np.int64}
_SCRATCH_TYPES: dict[str, type] = {**TYPES, "i1": np.uint8, "index": np.int64}
_WRITABLE = "bufferization.writable"
INLINE = "builtin.module(lower-affine,inline,symbol-dce)"  # scf.if takes no affine operations
BUFFERIZE = (
    "builtin.module(func.func(iree-codegen-decompose-softmax,convert-elementwise-to-linalg),"
    "eliminate-empty-tensors,one-shot-bufferize{bufferize-function-boundaries=1 "
    "function-boundary-type-conversion=identity-layout-map},canonicalize,cse)"
)


def is_float(element: str) -> bool:
    """Return whether an element type of `TYPES` holds floats; bf16 are words to NumPy."""
    return element == "bf16" or np.dtype(TYPES[element]).kind == "f"


@dataclass(frozen=True)
class Shaped:
    """A static tensor or memref, by MLIR's element type; a `writable` one may be overwritten."""

    shape: tuple[int, ...]
    element: str
    writable: bool = False

    @property
    def dtype(self) -> "np.dtype[Any]":
        """The NumPy type of its elements; bf16 are words of 16 bits."""
        return np.dtype(TYPES[self.element])


@dataclass(frozen=True)
class Signature:
    """A payload's function; without `results` it computes in its arguments."""

    name: str
    arguments: tuple[Shaped, ...]
    results: tuple[Shaped, ...]


def entry_of(module: Any) -> Any:
    """Return the only public function, or the only one; raise StageError if it is not unique.

    Declarations do not count, and private functions are parts of their callers.
    """
    functions = definitions(module)
    public = [one for one in functions if not _is_private(one)]
    if len(functions) != 1 and len(public) != 1:
        raise StageError("lower", f"the payload has {len(functions)} functions; give one")
    return functions[0] if len(functions) == 1 else public[0]


def _is_private(function: Any) -> bool:
    """Return whether a function can only be called from its module."""
    attributes, name = function.attributes, "sym_visibility"
    return name in attributes and ir.StringAttr(attributes[name]).value == "private"


def signature_of(module: Any) -> Signature:
    """Return the signature of `entry_of`; raise StageError for other than static shapes."""
    function = entry_of(module)
    kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    name = ir.StringAttr(function.attributes["sym_name"]).value
    arguments = [
        _shaped(name, argument, writable)
        for argument, writable in zip(kind.inputs, _writable(function), strict=True)
    ]
    results = tuple(_shaped(name, result) for result in kind.results)
    return Signature(name, tuple(arguments), results)


def require_same(payload: Signature, scripted: Signature) -> None:
    """Raise StageError if a script changes the signature, by which memory would be read."""
    types = [
        " ".join(f"{a.element}{list(a.shape)}" for a in (*one.arguments, *one.results))
        for one in (payload, scripted)
    ]
    if types[0] != types[1] or payload.name != scripted.name:
        raise StageError(
            "verify",
            f"the script makes @{scripted.name} of {types[1]} from @{payload.name} of {types[0]}; "
            f"a script leaves the signature as it is",
        )


def _writable(function: Any) -> list[bool]:
    """Return which arguments the function may overwrite: tensors, unless marked otherwise."""
    arguments = function.regions[0].blocks[0].arguments
    given: list[Any] = [{}] * len(arguments)
    if "arg_attrs" in function.attributes:
        given = [ir.DictAttr(a) for a in ir.ArrayAttr(function.attributes["arg_attrs"])]
    return [
        isinstance(argument.type, ir.RankedTensorType)
        and (_WRITABLE not in known or ir.BoolAttr(known[_WRITABLE]).value)
        for argument, known in zip(arguments, given, strict=True)
    ]


def _shaped(function: str, kind: Any, writable: bool = False) -> Shaped:
    if isinstance(kind, ir.RankedTensorType | ir.MemRefType) and kind.has_static_shape:
        element = str(kind.element_type)
        if element in TYPES:
            return Shaped(tuple(kind.shape), element, writable)
    raise StageError(
        "lower",
        f"@{function} has {kind} in its signature; static tensors and memrefs of "
        f"{', '.join(TYPES)} are supported",
    )


def poisoned(scratch: tuple[ScratchBuffer, ...]) -> list[Array]:
    """Return poisoned buffers for a function's allocations, so that unwritten elements show."""
    buffers = []
    for buffer in scratch:
        if buffer.element not in _SCRATCH_TYPES:
            raise StageError("lower", f"a buffer of {buffer.element} cannot be provided")
        buffers.append(empty_aligned(buffer.shape, _SCRATCH_TYPES[buffer.element]))
        poison(buffers[-1])
    return buffers


@dataclass(frozen=True)
class Function:
    """Machine code of a function, with the scratch memory that it needs."""

    signature: Signature
    compiled: LoadedCode
    scratch: tuple[ScratchBuffer, ...]

    def bind(self, inputs: list[Array], *more: Array) -> "BoundFunction":
        """Return the function on copies of `inputs`, `more`, and poisoned scratch."""
        arrays = [_aligned(array) for array in inputs]
        likes = [np.empty(result.shape, result.dtype) for result in self.signature.results]
        call = RepeatedCall(self.compiled, [*arrays, *more, *poisoned(self.scratch)], *likes)
        return BoundFunction(self.signature, call, arrays)


@dataclass(frozen=True)
class BoundFunction:
    """A function with its arguments."""

    signature: Signature
    call: RepeatedCall
    arguments: list[Array]

    def results(self) -> "list[OutputArray]":
        """Return what the last run left: returned values and every argument but writable ones.

        If nothing is returned, the arguments are the result, writable or not.
        """
        returned = self.signature.results
        found = [
            OutputArray(
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
                found.append(OutputArray(f"argument {number}", kind.element, array))
        return found


@dataclass(frozen=True)
class OutputArray:
    """An array that a function has written, or should have left alone."""

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

    `changes` are applied to the module on buffers before it is lowered. Raise StageError `lower`,
    `compile`, or `verify` if `signature`, the payload's, differs.
    """
    inline(module, diagnostics)
    bufferize(module, diagnostics)
    require_same(signature, signature_of(module))
    lower_packs(module)
    for change in changes:
        change(module)
    text, scratch = lower(module, diagnostics)
    return Function(signature, compile_ir(text, signature.name, effort), scratch)


def inline(module: Any, diagnostics: Diagnostics) -> None:
    """Inline all calls into one function; raise StageError if one cannot be inlined."""
    if sum(op.operation.name == "func.func" for op in module.body.operations) < 2:
        return
    entry_of(module).attributes["sym_visibility"] = ir.StringAttr.get("public")
    with diagnostics.stage("lower"):
        run_passes(module, INLINE)
    for operation, _ in walk(module.operation):
        if operation.name == "func.call":
            raise StageError("lower", f"a call that cannot be made part of its caller: {operation}")


def bufferize(module: Any, diagnostics: Diagnostics) -> None:
    """Turn the tensors that a script has left into buffers, or raise StageError `lower`."""
    if "tensor<" in str(module):
        with diagnostics.stage("lower"):
            run_passes(module, BUFFERIZE)


def _aligned(array: Array) -> Array:
    """Return a copy that starts on a cache line."""
    copy = empty_aligned(array.shape, array.dtype.type)
    copy[...] = array
    return copy
