"""Looking at what a script made: loops, vectors, and where the reduction ended up."""

from collections.abc import Iterator
from typing import Any

from iree.compiler import ir

from tilewise.kernels.mlir.lowering.apply import StageError

LOOPS = ("scf.for", "scf.forall", "scf.parallel")
MULTIPLICATIONS = ("arith.mulf", "arith.muli", "math.fma", "vector.fma")


def walk(operation: Any, depth: int = 0) -> Iterator[tuple[Any, int]]:
    """Every operation below `operation` with the number of loops around it."""
    for region in operation.regions:
        for block in region.blocks:
            for op in block.operations:
                inner = op.operation
                yield inner, depth
                yield from walk(inner, depth + (inner.name in LOOPS))


def check_structure(module: Any, columns: int, lanes: int = 0) -> bool:
    """Check that the code is fast by construction: vectors inside, nothing dynamic.

    Args:
        module: the transformed module.
        columns: that vectors can run along; with one there need not be any vector.
        lanes: what the schedule makes of them; a vector along another dim is as a rule
            shorter, and a shorter one will not do; 0 for code that need not multiply.

    Returns:
        Whether vectors are multiplied.

    Raises:
        StageError: `structure`, with the operation that gives it away.
    """
    widest, scalar = 0, None
    for operation, depth in walk(module.operation):
        name = operation.name
        if name in ("memref.alloc", "memref.alloca") and len(operation.operands):
            raise StageError("structure", f"a buffer of dynamic size is left: {operation}")
        if name.startswith("linalg.") and _reduces(operation):
            raise StageError("structure", f"a contraction was not vectorised: {operation}")
        if name in MULTIPLICATIONS:
            kind = operation.results[0].type
            if isinstance(kind, ir.VectorType):
                widest = max(widest, kind.shape[-1])
            elif depth and not isinstance(kind, ir.IndexType):
                scalar = operation
    if scalar is not None and not widest and columns > 1:
        raise StageError("structure", f"loops multiply nothing but scalars: {scalar}")
    if columns > 1 and widest < lanes:
        raise StageError(
            "structure",
            f"vectors of {widest} are multiplied, and the schedule's have {lanes} lanes",
        )
    return widest > 0


def is_vectorised(module: Any) -> bool:
    """Whether vectors are multiplied, or contracted."""
    names = (*MULTIPLICATIONS, "vector.contract", "vector.outerproduct")
    found = (op for op, _ in walk(module.operation) if op.name in names)
    return any(isinstance(op.results[0].type, ir.VectorType) for op in found)


def _reduces(operation: Any) -> bool:
    if "iterator_types" in operation.attributes:
        return "reduction" in str(operation.attributes["iterator_types"])
    return "matmul" in operation.name or "conv" in operation.name
