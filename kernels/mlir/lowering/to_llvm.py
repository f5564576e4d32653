"""From the transformed module to LLVM IR, with every scratch buffer as an argument."""

from dataclasses import dataclass
from math import prod
from typing import Any

from iree.compiler import ir
from iree.compiler.dialects import llvm, memref
from iree.compiler.dialects.transform import interpreter
from iree.compiler.passmanager import PassManager

from tilewise.kernels.mlir.lowering.apply import Diagnostics, StageError
from tilewise.kernels.mlir.lowering.llvm_text import compute_in_f32
from tilewise.kernels.mlir.lowering.structure import walk

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
VECTOR_BYTES = 64
MOST_ON_STACK = 1 << 14
"""Elements of a buffer of a register tile, which LLVM makes registers of as far as they go."""


@dataclass(frozen=True)
class Scratch:
    """A buffer that the caller provides: shape and MLIR element type."""

    shape: tuple[int, ...]
    element: str

    @property
    def elements(self) -> int:
        """How many elements it holds."""
        return prod(self.shape)


def lower(module: Any, diagnostics: Diagnostics) -> tuple[str, tuple[Scratch, ...]]:
    """LLVM IR text, and the scratch buffers that follow the operands as arguments.

    Raises:
        StageError: `lower`.
    """
    try:
        for pipeline in _BEFORE_SCRATCH:
            PassManager.parse(pipeline).run(module.operation)
        scratch = _scratch_to_arguments(function_of(module))
        operations = [op for op, _ in walk(module.operation)]
        is_approximated = any(op.name in _WITHOUT_LIBRARY for op in operations)
        compute_in_f32(operations)
        if is_approximated:
            PassManager.parse(_APPROXIMATED).run(module.operation)
        _lower_vectors(module)
        for pipeline in _AFTER_SCRATCH:
            PassManager.parse(pipeline).run(module.operation)
        return llvm.translate_module_to_llvmir(module.operation), scratch
    except (ir.MLIRError, ValueError, RuntimeError) as error:
        raise StageError("lower", diagnostics.explain(error)) from error


def _lower_vectors(module: Any) -> None:
    """Make operations on vectors of several dims ones on vectors of one.

    Raises:
        StageError: `lower`; one is left.
    """
    if not _high_vectors(module):
        return
    masks = ir.Module.parse(_MASKS)
    sequence = masks.body.operations[0].operation
    interpreter.apply_named_sequence(module.operation, sequence, masks.operation)
    PassManager.parse(_LOWER_VECTORS).run(module.operation)
    if left := _high_vectors(module):
        raise StageError("lower", f"no code for vectors of several dims: {left[0]}")


def _high_vectors(module: Any) -> list[Any]:
    """Return the operations on vectors that the conversion to LLVM crashes at."""
    return [
        op
        for op, _ in walk(module.operation)
        if op.name in ("vector.contract", "vector.multi_reduction")
        or (op.name in _MOVES and _most_dims(op) > 1)
    ]


def _most_dims(operation: Any) -> int:
    kinds = [value.type for value in (*operation.operands, *operation.results)]
    return max((kind.rank for kind in kinds if isinstance(kind, ir.VectorType)), default=0)


def definitions(module: Any) -> list[Any]:
    """Return the functions of a module that have a body."""
    return [
        op.operation
        for op in module.body.operations
        if op.operation.name == "func.func" and len(op.operation.regions[0].blocks)
    ]


def is_private(function: Any) -> bool:
    """Return whether nothing outside of its module can call a function."""
    attributes = function.attributes
    name = "sym_visibility"
    return name in attributes and ir.StringAttr(attributes[name]).value == "private"


def function_of(module: Any) -> Any:
    """The first function of a module; ValueError where it has none."""
    for function in definitions(module):
        return function
    raise ValueError("the module has no func.func")


def _scratch_to_arguments(function: Any) -> tuple[Scratch, ...]:
    """Replace allocations by arguments: the conversion to LLVM refuses functions that allocate.

    A buffer allocated in a loop becomes one buffer for all iterations, which is sound
    since none outlives its iteration. One that vectors fill lies on the stack, where LLVM makes
    registers of it; nothing reads it before. One that is returned outlives the stack.
    """
    for op in [op for op, _ in walk(function) if op.name == "memref.dealloc"]:
        op.erase()
    block = function.regions[0].blocks[0]
    types, scratch = [], []
    allocations = ("memref.alloc", "memref.alloca")
    for op in [op for op, _ in walk(function) if op.name in allocations]:
        kind = ir.MemRefType(op.results[0].type)
        if not kind.has_static_shape:
            raise ValueError(f"a buffer of dynamic size is left: {op}")
        if _is_a_vector(op, kind):
            op.results[0].replace_all_uses_with(_on_stack(kind, block))
            op.erase()
            continue
        argument = block.add_argument(kind, ir.Location.unknown())
        op.results[0].replace_all_uses_with(argument)
        op.erase()
        types.append(kind)
        scratch.append(Scratch(tuple(kind.shape), str(kind.element_type)))
    signature = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    function.attributes["function_type"] = ir.TypeAttr.get(
        ir.FunctionType.get([*signature.inputs, *types], signature.results)
    )
    function.attributes["sym_visibility"] = ir.StringAttr.get("private")
    if "arg_attrs" in function.attributes:
        del function.attributes["arg_attrs"]
    return tuple(scratch)


def _is_a_vector(allocation: Any, kind: ir.MemRefType) -> bool:
    """Whether vectors fill a small buffer before anything else happens to it."""
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
    """The operations that use a buffer, or a view of it that has all of it."""
    found = []
    for use in buffer.uses:
        user = use.owner.operation
        reshaped = user.name in ("memref.collapse_shape", "memref.expand_shape")
        found += _users(user.results[0]) if reshaped else [user]
    return found


def _is_returned(buffer: Any) -> bool:
    """Whether a function returns a buffer, or a view of it."""
    users = [use.owner.operation for use in buffer.uses]
    return any(
        user.name == "func.return" or (user.name in _VIEWS and _is_returned(user.results[0]))
        for user in users
    )


def _around(operation: Any, block: Any) -> Any:
    """The operation of a block that is, or has in it, `operation`."""
    while operation.block != block:
        operation = operation.parent
    return operation.operation


def _on_stack(kind: ir.MemRefType, block: Any) -> Any:
    """A buffer that is made once, where the function begins."""
    with ir.InsertionPoint.at_block_begin(block):
        return memref.alloca(kind, [], [], alignment=VECTOR_BYTES)
