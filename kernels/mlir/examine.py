"""The child's side of `kernels.mlir.verify`: a script that may be anybody's, on any payload."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from iree.compiler import ir
from iree.compiler.passmanager import PassManager

from kernels.mlir.apply import Diagnostics, StageError, apply_script, apply_to, is_vectorised
from kernels.mlir.jit import Call, Compiled, compile_ir
from kernels.mlir.lower import Scratch, lower
from kernels.mlir.outline import outline
from kernels.mlir.packs import lower_packs
from kernels.mlir.timing import time_call
from kernels.reference import Array, empty_aligned, poison, to_bf16

LARGEST_INPUT = 3  # inputs are small whole numbers, whose sums of products no order rounds
ROUNDING = 1e-6  # of what is not a sum of products
BUFFERIZE = (
    "builtin.module(eliminate-empty-tensors,one-shot-bufferize{bufferize-function-boundaries=1 "
    "function-boundary-type-conversion=identity-layout-map},canonicalize,cse)"
)
_TYPES = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": np.uint16,
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
}  # fmt: skip


@dataclass(frozen=True)
class Shaped:
    """A static tensor or memref: shape, and element type by MLIR's name."""

    shape: tuple[int, ...]
    element: str


@dataclass(frozen=True)
class Signature:
    """The function of a payload.

    Attributes:
        name: without the `@`.
        arguments: what it takes.
        result: what it returns, or None.
        in_place: whether what it computes is what its arguments hold afterwards.
    """

    name: str
    arguments: tuple[Shaped, ...]
    result: Shaped | None
    in_place: bool


@dataclass(frozen=True)
class Function:
    """Machine code of a payload, with the memory that it wants besides its arguments."""

    signature: Signature
    compiled: Compiled
    scratch: tuple[Scratch, ...]


def apply_request(request: dict[str, Any], diagnostics: Diagnostics) -> Any:
    """The transformed module of a request's script; StageError where it does not apply."""
    if request["payload"] is None:
        return apply_script(request["script"], diagnostics)
    return apply_to(request["payload"], request["script"], diagnostics)


def examine(module: Any) -> dict[str, Any]:
    """What can be said of a transformed module before it is run."""
    return {
        "outline": outline(module),
        "vectorised": is_vectorised(module),
        "transformed": str(module),
    }


def run_payload(request: dict[str, Any], module: Any, diagnostics: Diagnostics) -> dict[str, Any]:
    """Compile the module and its payload as it was, run both on the same inputs, compare.

    Raises:
        StageError: either cannot be lowered, or takes what no inputs can be made for.
    """
    text = request["payload"] if request["payload"] is not None else request["script"]
    plain = ir.Module.parse(text)
    drop_sequences(plain)
    signature = signature_of(plain)
    begin = time.perf_counter()
    function = compile_function(module, signature, diagnostics)
    out: dict[str, Any] = {"compile_s": time.perf_counter() - begin}
    reference = compile_function(plain, signature, diagnostics)
    inputs = make_inputs(signature, request["seed"])
    expected, unscripted = run(reference, inputs)
    found, scripted = run(function, inputs, request["repeat_s"])
    error, tolerance = largest_error(found, expected)
    out |= {"executed": True, "max_error": error, "tolerance": tolerance}
    if not error <= tolerance:
        message = f"the result is off by {error:g} from the payload's own, {tolerance:g} is allowed"
        return out | {"failure": "wrong", "message": message}
    return out | {"time_us": scripted * 1e6, "unscripted_us": unscripted * 1e6}


def drop_sequences(module: Any) -> None:
    """Leave the payload of a module alone."""
    for op in list(module.body.operations):
        if op.operation.name.startswith("transform."):
            op.operation.erase()


def signature_of(module: Any) -> Signature:
    """The signature of the only function.

    Raises:
        StageError: there are several, or it takes more than static tensors and memrefs.
    """
    functions = [op.operation for op in module.body.operations if op.operation.name == "func.func"]
    if len(functions) != 1:
        raise StageError("lower", f"the payload has {len(functions)} functions; give one")
    (function,) = functions
    kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    name = ir.StringAttr(function.attributes["sym_name"]).value
    if len(kind.results) > 1:
        raise StageError("lower", f"@{name} returns {len(kind.results)} values; one is supported")
    in_place = not kind.results
    return Signature(
        name,
        tuple(_shaped(name, argument) for argument in kind.inputs),
        None if in_place else _shaped(name, kind.results[0]),
        in_place,
    )


def _shaped(function: str, kind: Any) -> Shaped:
    if isinstance(kind, ir.RankedTensorType | ir.MemRefType) and kind.has_static_shape:
        element = str(kind.element_type)
        if element in _TYPES:
            return Shaped(tuple(kind.shape), element)
    raise StageError(
        "lower",
        f"@{function} has {kind} in its signature; static tensors and memrefs of "
        f"{', '.join(_TYPES)} are supported",
    )


def compile_function(module: Any, signature: Signature, diagnostics: Diagnostics) -> Function:
    """Bufferise what is left of tensors, lower, compile."""
    bufferize(module, diagnostics)
    lower_packs(module)
    text, scratch = lower(module, diagnostics)
    return Function(signature, compile_ir(text, signature.name), scratch)


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


def make_inputs(signature: Signature, seed: int) -> list[Array]:
    """Small random whole numbers for every argument."""
    random = np.random.default_rng(seed)
    inputs = []
    for argument in signature.arguments:
        whole = random.integers(-LARGEST_INPUT, LARGEST_INPUT + 1, argument.shape)
        if argument.element == "bf16":
            inputs.append(to_bf16(whole.astype(np.float32)))
        else:
            inputs.append(whole.astype(_TYPES[argument.element]))
    return inputs


def run(
    function: Function, inputs: list[Array], repeat_s: float | None = None
) -> tuple[list[Array], float]:
    """What the function computes, and the median seconds of a call; of the first without repeats.

    Plain loops may take a thousand times as long as what a script makes of them.
    """
    arrays = [aligned(array) for array in inputs]
    scratch = [empty_aligned(s.shape, _TYPES[s.element]) for s in function.scratch]
    for buffer in scratch:
        poison(buffer)
    returned, signature = function.signature.result, function.signature
    like = np.empty(returned.shape, _TYPES[returned.element]) if returned else None
    call = Call(function.compiled, [*arrays, *scratch], like)
    begin = time.perf_counter()
    call()
    once = time.perf_counter() - begin
    if returned is None:
        results = [widened(a, s.element) for a, s in zip(arrays, signature.arguments, strict=True)]
    else:
        results = [widened(call.returned(), returned.element)]
    return results, once if repeat_s is None else time_call(call, repeat_s).median


def aligned(array: Array) -> Array:
    """A copy that starts on a cache line."""
    copy = empty_aligned(array.shape, array.dtype.type)
    copy[...] = array
    return copy


def widened(array: Array, element: str) -> Array:
    """A copy in float64, where every element type here is exact but the widest integers."""
    if element == "bf16":
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


def largest_error(found: list[Array], expected: list[Array]) -> tuple[float, float]:
    """The largest deviation, and what is allowed: next to nothing, relative to the largest."""
    error, largest = 0.0, 0.0
    for one, other in zip(found, expected, strict=True):
        if other.size:
            difference = np.abs(one - other)
            error = max(error, float(np.nan_to_num(difference, nan=np.inf).max()))
            largest = max(largest, float(np.abs(other).max()))
    return error, ROUNDING * largest
