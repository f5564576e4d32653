"""Loops of a payload put in an order in which LLVM makes vectors of them.

A payload runs many times to be compared with. Its plain loops end with the reduction. With the
last parallel dim innermost, LLVM computes neighbours together. The reductions keep their
order, and so each element is the same sum of the same terms in the same order, bit for bit.
"""

from typing import Any

from iree.compiler import ir
from iree.compiler.passmanager import PassManager

from tilewise.kernels.mlir.lowering.structure import walk

_GENERALIZE = "builtin.module(func.func(linalg-generalize-named-ops))"


def put_parallel_innermost(module: Any) -> None:
    """Reorder every linalg op that ends with a reduction, in place."""
    PassManager.parse(_GENERALIZE).run(module.operation)
    for operation, _ in walk(module.operation):
        if operation.name == "linalg.generic" and not _reads_indices(operation):
            _reorder(operation)


def _reads_indices(operation: Any) -> bool:
    return any(op.name == "linalg.index" for op, _ in walk(operation))


def _reorder(operation: Any) -> None:
    kinds = list(ir.ArrayAttr(operation.attributes["iterator_types"]))
    parallel = [dim for dim, kind in enumerate(kinds) if "parallel" in str(kind)]
    if not parallel or parallel[-1] == len(kinds) - 1:
        return
    last = parallel[-1]
    order = [*(dim for dim in range(len(kinds)) if dim != last), last]
    moved = [ir.AffineExpr.get_dim(order.index(dim)) for dim in range(len(kinds))]
    permutation = ir.AffineMap.get(len(kinds), 0, moved)
    maps = [ir.AffineMapAttr(a).value for a in ir.ArrayAttr(operation.attributes["indexing_maps"])]
    operation.attributes["iterator_types"] = ir.ArrayAttr.get([kinds[dim] for dim in order])
    operation.attributes["indexing_maps"] = ir.ArrayAttr.get(
        [ir.AffineMapAttr.get(_composed(one, permutation)) for one in maps]
    )


def _composed(outer: Any, inner: Any) -> Any:
    """The map that applies `inner`, then `outer`."""
    results = [ir.AffineExpr.compose(result, inner) for result in outer.results]
    return ir.AffineMap.get(inner.n_dims, 0, results)
