"""From the transformed module to LLVM IR, with every scratch buffer as an argument."""

from dataclasses import dataclass
from math import prod
from typing import Any

from iree.compiler import ir
from iree.compiler.dialects import llvm, memref
from iree.compiler.dialects.transform import interpreter

from tilewise.kernels.mlir.lowering.apply import Diagnostics, StageError, run_passes
from tilewise.kernels.mlir.lowering.structure import (
    BUFFERS,
    add_arguments,
    element_of,
    function_of,
    walk,
)

_BEFORE_SCRATCH = (
    "builtin.module(canonicalize,cse,canonicalize)",
    "builtin.module(func.func(iree-codegen-memrefcopy-to-linalg))",
    "builtin.module(func.func(iree-codegen-forall-to-for),canonicalize,cse)",
    "builtin.module(func.func(convert-linalg-to-loops),fold-memref-alias-ops,canonicalize,cse)",
)
_WITHOUT_LIBRARY = {"math.erf", "math.fpowi", "math.asinh", "math.acosh", "math.atanh", "math.cbrt"}
_APPROXIMATED = "builtin.module(func.func(iree-codegen-math-transform))"
_MASKS = """
module attributes {transform.with_named_sequence} {
  transform.named_sequence @unmask(%module: !transform.any_op) {
    %function = transform.structured.match ops{["func.func"]} in %module
      : (!transform.any_op) -> !transform.any_op
    transform.apply_patterns to %function {
      transform.apply_patterns.vector.lower_masked_transfers
    } : !transform.any_op
    transform.yield
  }
}
"""
_LOWER_VECTORS = (
    "builtin.module(func.func(iree-llvmcpu-virtual-vector-lowering),canonicalize,cse,"
    "func.func(iree-codegen-vector-transfer-lowering),canonicalize,cse,"
    "func.func(iree-llvmcpu-vector-transpose-lowering,iree-llvmcpu-vector-shape-cast-lowering),"
    "canonicalize,cse)"
)
_AFTER_SCRATCH = (
    "builtin.module(expand-strided-metadata,canonicalize,cse,affine-expand-index-ops-as-affine,"
    "lower-affine,convert-scf-to-cf,canonicalize,cse)",
    "builtin.module(iree-convert-to-llvm)",
)
_MOVES = {"vector.transfer_read", "vector.transfer_write", "vector.load", "vector.store",
          "vector.maskedload", "vector.maskedstore", "vector.gather", "vector.scatter"}  # fmt: skip
_VIEWS = {f"memref.{kind}" for kind in ("cast", "collapse_shape", "expand_shape", "subview",
                                       "reinterpret_cast")}  # fmt: skip
_COMPUTING = ("arith.", "math.")
_VECTORS = {"vector.contract", "vector.fma", "vector.outerproduct", "vector.reduction",
            "vector.multi_reduction", "vector.scan"}  # fmt: skip
_AS_BITS = {"arith.constant", "arith.bitcast", "arith.select"}
_CASTS = {"arith.extf", "arith.truncf"}
VECTOR_BYTES = 64
MOST_ON_STACK = 1 << 14
"""Elements of a register tile's buffer, which LLVM promotes to registers as far as possible."""


@dataclass(frozen=True)
class ScratchBuffer:
    """A buffer that the caller provides: shape and MLIR element type."""

    shape: tuple[int, ...]
    element: str


def lower(module: Any, diagnostics: Diagnostics) -> tuple[str, tuple[ScratchBuffer, ...]]:
    """Return LLVM IR text, and the scratch buffers that follow the operands as arguments."""
    with diagnostics.stage("lower"):
        run_passes(module, *_BEFORE_SCRATCH)
        scratch = _scratch_to_arguments(function_of(module))
        operations = [op for op, _ in walk(module.operation)]
        is_approximated = any(op.name in _WITHOUT_LIBRARY for op in operations)
        _compute_all_in_f32(operations)
        if is_approximated:
            run_passes(module, _APPROXIMATED)
        _lower_vectors(module)
        run_passes(module, *_AFTER_SCRATCH)
        return llvm.translate_module_to_llvmir(module.operation), scratch


def _lower_vectors(module: Any) -> None:
    """Lower operations on vectors of several dims to one dim; raise StageError if one is left."""
    if not _high_vectors(module):
        return
    masks = ir.Module.parse(_MASKS)
    sequence = masks.body.operations[0].operation
    interpreter.apply_named_sequence(module.operation, sequence, masks.operation)
    run_passes(module, _LOWER_VECTORS)
    if left := _high_vectors(module):
        raise StageError("lower", f"no code for vectors of several dims: {left[0]}")


def _high_vectors(module: Any) -> list[Any]:
    """Return the operations on vectors that crash the conversion to LLVM."""
    return [
        op
        for op, _ in walk(module.operation)
        if op.name in ("vector.contract", "vector.multi_reduction")
        or (op.name in _MOVES and _most_dims(op) > 1)
    ]


def _most_dims(operation: Any) -> int:
    kinds = [value.type for value in (*operation.operands, *operation.results)]
    return max((kind.rank for kind in kinds if isinstance(kind, ir.VectorType)), default=0)


def _scratch_to_arguments(function: Any) -> tuple[ScratchBuffer, ...]:
    """Replace allocations by arguments: the conversion to LLVM refuses functions that allocate.

    A buffer in a loop becomes one for all iterations, since none outlives its iteration. One that
    vectors fill first is on the stack, where LLVM promotes it to registers. A returned buffer
    outlives the stack.
    """
    for op in [op for op, _ in walk(function) if op.name == "memref.dealloc"]:
        op.erase()
    block = function.regions[0].blocks[0]
    kept = []
    for op in [op for op, _ in walk(function) if op.name in BUFFERS]:
        kind = ir.MemRefType(op.results[0].type)
        if not kind.has_static_shape:
            raise ValueError(f"a buffer of dynamic size is left: {op}")
        if _is_a_vector(op, kind):
            op.results[0].replace_all_uses_with(_on_stack(kind, block))
            op.erase()
        else:
            kept.append((op, kind))
    added = add_arguments(function, [kind for _, kind in kept])
    for (op, _), argument in zip(kept, added, strict=True):
        op.results[0].replace_all_uses_with(argument)
        op.erase()
    function.attributes["sym_visibility"] = ir.StringAttr.get("private")
    return tuple(ScratchBuffer(tuple(kind.shape), str(kind.element_type)) for _, kind in kept)


def _is_a_vector(allocation: Any, kind: ir.MemRefType) -> bool:
    """Return whether vectors fill a small buffer before any other use."""
    if prod(kind.shape) > MOST_ON_STACK or _is_returned(allocation.results[0]):
        return False
    used_by = {_around(user, allocation.block) for user in _users(allocation.results[0])}
    left = prod(kind.shape)
    for op in (op for op in allocation.block.operations if op.operation in used_by):
        if op.operation.name not in ("vector.transfer_write", "vector.store"):
            return False
        value, *at = op.operands
        if len(at) > 1 + ir.MemRefType(at[0].type).rank:
            return False  # masked
        left -= prod(value.type.shape)
        if left <= 0:
            return True
    return False


def _users(buffer: Any) -> list[Any]:
    """Return the operations that use a buffer, or a reshaped view of all of it."""
    found = []
    for use in buffer.uses:
        user = use.owner.operation
        reshaped = user.name in ("memref.collapse_shape", "memref.expand_shape")
        found += _users(user.results[0]) if reshaped else [user]
    return found


def _is_returned(buffer: Any) -> bool:
    """Return whether a function returns a buffer, or a view of it."""
    users = [use.owner.operation for use in buffer.uses]
    return any(
        user.name == "func.return" or (user.name in _VIEWS and _is_returned(user.results[0]))
        for user in users
    )


def _around(operation: Any, block: Any) -> Any:
    """Return the operation of a block that is or contains `operation`."""
    while operation.block != block:
        operation = operation.parent
    return operation.operation


def _on_stack(kind: ir.MemRefType, block: Any) -> Any:
    """Return a buffer that is allocated once, at the beginning of the function."""
    with ir.InsertionPoint.at_block_begin(block):
        return memref.alloca(kind, [], [], alignment=VECTOR_BYTES)


def _compute_all_in_f32(operations: list[Any]) -> None:
    """Replace operations on bf16 by ones on f32, with widened operands and rounded results.

    Conversions between f64 and a 16-bit float go through f32: processors and LLVM lack them. Raise
    StageError `lower` inside of `vector.mask`, which holds a single operation.
    """
    for operation in operations:
        name = operation.name
        if name in _CASTS:
            _cast_by_f32(operation)
        elif name not in _AS_BITS and (name.startswith(_COMPUTING) or name in _VECTORS):
            _compute_in_f32(operation)


def _compute_in_f32(operation: Any) -> None:
    values = [*operation.operands, *operation.results]
    if not any(element_of(value.type) == "bf16" for value in values):
        return
    if operation.parent.operation.name == "vector.mask":
        raise StageError(
            "lower",
            f"cannot compute in bf16 under a mask; vectorize without vector_sizes: {operation}",
        )
    with ir.InsertionPoint(operation), operation.location:
        operands = [
            _cast("arith.extf", one, "f32") if element_of(one.type) == "bf16" else one
            for one in operation.operands
        ]
        kinds = [
            _of_element(one.type, "f32") if element_of(one.type) == "bf16" else one.type
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
    if {element_of(value.type), element_of(result.type)} not in ({"bf16", "f64"}, {"f16", "f64"}):
        return
    with ir.InsertionPoint(operation), operation.location:
        narrower = _cast(operation.name, value, "f32")
        result.replace_all_uses_with(_cast(operation.name, narrower, element_of(result.type)))
    operation.erase()


def _cast(name: str, value: Any, element: str) -> Any:
    kind = _of_element(value.type, element)
    return ir.Operation.create(name, results=[kind], operands=[value]).results[0]


def _of_element(kind: Any, element: str) -> Any:
    """Return a type like `kind`, of another element type."""
    wanted = ir.Type.parse(element)
    if isinstance(kind, ir.VectorType):
        return ir.VectorType.get(kind.shape, wanted, scalable=kind.scalable_dims)
    return wanted
