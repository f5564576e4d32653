"""Rewrites of linalg ops so that a processor executes them well, or at all.

Plain loops of a payload end with the reduction. With the last parallel dim innermost, LLVM
vectorises it, and each element is still the same sum in the same order, bit for bit.

MLIR lowers packs and unpacks on tensors only, but scripts make buffers, and executing their own IR
proves more than executing a variant. Each op becomes the `linalg.generic` of its documentation:
with outer permutation p and inner tiles t at positions q, element x of the plain buffer is
packed[(x // t)_p..., x_q % t...]. The loops run over the plain buffer. Where tiles do not divide
it, a pack fills the rest of the last tile with its padding, and an unpack drops it.
"""

from typing import Any

from iree.compiler import ir

from tilewise.kernels.mlir.lowering.apply import StageError, run_passes
from tilewise.kernels.mlir.lowering.structure import walk

_GENERALIZE = "builtin.module(func.func(linalg-generalize-named-ops))"


def put_parallel_innermost(module: Any) -> None:
    """Reorder every linalg op that ends with a reduction, in place."""
    run_passes(module, _GENERALIZE)
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
    """Return the map that applies `inner`, then `outer`."""
    results = [ir.AffineExpr.compose(result, inner) for result in outer.results]
    return ir.AffineMap.get(inner.n_dims, 0, results)


_PADDING = 2  # the operand segment after source and target


def lower_packs(module: Any) -> None:
    """Replace linalg.pack and linalg.unpack on memrefs; raise StageError for dynamic tiles."""
    for operation in [op for op, _ in walk(module.operation)]:
        if operation.name in ("linalg.pack", "linalg.unpack"):
            with ir.InsertionPoint(operation), operation.location:
                _lower(operation)
            operation.erase()


def _lower(operation: Any) -> None:
    source, target = operation.operands[0], operation.operands[1]
    is_pack = operation.name == "linalg.pack"
    rank = ir.MemRefType((source if is_pack else target).type).rank
    plain, packed = ir.AffineMap.get_identity(rank), _packed_map(operation, rank)
    if is_pack and _segments(operation)[_PADDING]:
        dims = ir.MemRefType(target.type).rank
        everywhere, nowhere = ir.AffineMap.get_identity(dims), ir.AffineMap.get(dims, 0, [])
        _copy(operation.operands[_PADDING], target, [nowhere, everywhere])
    _copy(source, target, [plain, packed] if is_pack else [packed, plain])


def _segments(operation: Any) -> list[int]:
    """Return the sizes of the op's operand groups."""
    return list(ir.DenseI32ArrayAttr(operation.attributes["operandSegmentSizes"]))


def _copy(source: Any, target: Any, maps: list[Any]) -> None:
    """Write `source`, a scalar or a buffer, to `target`, each indexed by its map."""
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
    generic = ir.Operation.create(
        "linalg.generic",
        operands=[source, target],
        attributes={
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
            "iterator_types": ir.ArrayAttr.get([parallel] * maps[0].n_dims),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1]),
        },
        regions=1,
    )
    element = ir.MemRefType(target.type).element_type
    body = generic.regions[0].blocks.append(element, element)
    with ir.InsertionPoint(body):
        ir.Operation.create("linalg.yield", operands=[body.arguments[0]])


def _packed_map(operation: Any, rank: int) -> Any:
    """Return the map from the plain buffer to the packed one."""
    attributes = operation.attributes
    order = list(range(rank))
    if "outer_dims_perm" in attributes:
        order = list(ir.DenseI64ArrayAttr(attributes["outer_dims_perm"])) or order
    positions = list(ir.DenseI64ArrayAttr(attributes["inner_dims_pos"]))
    tiles = list(ir.DenseI64ArrayAttr(attributes["static_inner_tiles"]))
    if any(tile <= 0 for tile in tiles):
        raise StageError("lower", f"a tile of dynamic size cannot be run: {operation}")
    dims = [ir.AffineExpr.get_dim(dim) for dim in range(rank)]
    tiled = list(zip(positions, tiles, strict=True))
    outer = list(dims)
    for position, tile in tiled:
        outer[position] = ir.AffineExpr.get_floor_div(dims[position], tile)
    inner = [ir.AffineExpr.get_mod(dims[position], tile) for position, tile in tiled]
    return ir.AffineMap.get(rank, 0, [*(outer[dim] for dim in order), *inner])
