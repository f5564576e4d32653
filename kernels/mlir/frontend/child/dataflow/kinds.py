"""What an op that is no contraction does to the tensors that it reads."""

from typing import Any

from tilewise.kernels.mlir.frontend.child.structured import Structured, rank, structured
from tilewise.kernels.mlir.frontend.graph import NodeKind

OF_A_PLACE = ("linalg.index", "tensor.extract")
"""In a body: what depends on the order of axes beside the elements that are read in place."""


def kind_of(op: Any) -> NodeKind:
    """What an op is; of an elementwise one each element depends on those at one place alone."""
    seen = structured(op)
    if seen is None:
        is_math = op.name.startswith(("arith.", "math.")) and len(op.results) == 1
        return "elementwise" if is_math and rank(op.results[0]) else "other"
    if seen.name.startswith("linalg.pooling"):
        return "pool"
    return "elementwise" if _is_elementwise(seen) else "other"


def reads_in_place(op: Any, number: int) -> bool:
    """Whether an elementwise op reads an operand at the place that it writes, axis by axis."""
    seen = structured(op)
    if seen is None:
        return bool(op.operands[number].type.shape == op.results[0].type.shape)
    return seen.is_identity(number)


def _is_elementwise(op: Structured) -> bool:
    """Whether no loop reduces, and the result is written in the order of its axes."""
    if not op.is_identity(len(op.inputs)) or not any(rank(value) for value in op.inputs):
        return False
    written = {dim for axis in op.maps[-1] or () for dim, _ in axis}
    return all(
        axes is not None and all(dim in written for axis in axes for dim, _ in axis)
        for axes in op.maps
    ) and not any(view.operation.name in OF_A_PLACE for view in op.body.operations)
