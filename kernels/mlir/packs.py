"""Packs and unpacks on buffers to plain loops, so that a processor can execute them.

MLIR lowers both on tensors only, and what a script makes is on buffers. Executing that
very IR proves more than executing a variant of the script. So each op becomes the
`linalg.generic` that says what its documentation says: with outer permutation p and inner
tiles t at positions q, packed[o_p..., i...] = plain[o_q * t + i].
"""

from typing import Any

from iree.compiler import ir

from kernels.mlir.apply import walk


def lower_packs(module: Any) -> None:
    """Replace every linalg.pack and linalg.unpack on memrefs, in place."""
    for operation in [op for op, _ in walk(module.operation)]:
        if operation.name in ("linalg.pack", "linalg.unpack"):
            with ir.InsertionPoint(operation), operation.location:
                _copy(operation)
            operation.erase()


def _copy(operation: Any) -> None:
    source, target = operation.operands[0], operation.operands[1]
    packed, plain = (target, source) if operation.name == "linalg.pack" else (source, target)
    rank = ir.MemRefType(plain.type).rank
    identity = ir.AffineMap.get_identity(ir.MemRefType(packed.type).rank)
    scattered = _plain_map(operation, rank, identity.n_dims)
    maps = [scattered, identity] if source == plain else [identity, scattered]
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
    generic = ir.Operation.create(
        "linalg.generic",
        operands=[source, target],
        attributes={
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
            "iterator_types": ir.ArrayAttr.get([parallel] * identity.n_dims),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1]),
        },
        regions=1,
    )
    element = ir.MemRefType(source.type).element_type
    body = generic.regions[0].blocks.append(element, element)
    with ir.InsertionPoint(body):
        ir.Operation.create("linalg.yield", operands=[body.arguments[0]])


def _plain_map(operation: Any, rank: int, dims: int) -> Any:
    """Where in the plain buffer an element of the packed one lies."""
    attributes = operation.attributes
    order = list(range(rank))
    if "outer_dims_perm" in attributes:
        order = list(ir.DenseI64ArrayAttr(attributes["outer_dims_perm"])) or order
    positions = list(ir.DenseI64ArrayAttr(attributes["inner_dims_pos"]))
    tiles = list(ir.DenseI64ArrayAttr(attributes["static_inner_tiles"]))
    index = [ir.AffineExpr.get_dim(order.index(dim)) for dim in range(rank)]
    for inner, (position, tile) in enumerate(zip(positions, tiles, strict=True)):
        index[position] = index[position] * tile + ir.AffineExpr.get_dim(rank + inner)
    return ir.AffineMap.get(dims, 0, index)
