"""Drop results of linalg ops that nothing uses: torch's maximum also gives its place."""

from typing import Any

from iree.compiler import ir

from tilewise.kernels.mlir.frontend.child.operations import operations
from tilewise.kernels.mlir.frontend.child.values import is_used


def drop_unused_results(module: Any) -> None:
    """Rewrite each `linalg.generic` of several results to return only the used one, if possible."""
    for op, _, _ in list(operations(module.operation)):
        if op.name == "linalg.generic" and len(op.results) > 1:
            used = [i for i, one in enumerate(op.results) if is_used(one)]
            if len(used) == 1 and not _needs_others(op, used[0]):
                _keep(op, used[0])


def _needs_others(op: Any, kept: int) -> bool:
    """Return whether a result is computed from what others hold so far."""
    block = op.regions[0].blocks[0]
    others = list(block.arguments)[-len(op.results) :]
    del others[kept]
    ops = [view.operation for view in block.operations]
    waiting, seen = [ops[-1].operands[kept]], set[Any]()
    while waiting:
        value = waiting.pop()
        if value in others:
            return True
        makers = [one for one in ops if value in list(one.results) and value not in seen]
        seen.add(value)
        waiting += [of for one in makers for of in one.operands]
    return False


def _keep(op: Any, kept: int) -> None:
    """Replace an op by one that makes a single result."""
    count = len(op.operands) - len(op.results)
    chosen = [*range(count), count + kept]
    maps = list(op.attributes["indexing_maps"])
    attributes = {
        "indexing_maps": ir.ArrayAttr.get([maps[i] for i in chosen], op.context),
        "iterator_types": op.attributes["iterator_types"],
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([count, 1], op.context),
    }
    made = ir.Operation.create(
        op.name, [op.results[kept].type], [op.operands[i] for i in chosen], attributes,
        regions=1, loc=op.location, ip=ir.InsertionPoint(op),
    )  # fmt: skip
    block = op.regions[0].blocks[0]
    block.append_to(made.regions[0])
    *inner, end = [view.operation for view in block.operations]
    ir.Operation.create("linalg.yield", [], [end.operands[kept]], loc=end.location,
                        ip=ir.InsertionPoint(end))  # fmt: skip
    end.erase()
    for one in reversed(inner):
        if not any(map(is_used, one.results)):
            one.erase()
    for i in reversed(range(count, len(block.arguments))):
        if i != count + kept:
            block.erase_argument(i)
    op.results[kept].replace_all_uses_with(made.results[0])
    op.erase()
