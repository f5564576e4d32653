"""The process that packs a module: `python -m tilewise.kernels.mlir.network.child.pack`."""

import time
from math import prod
from pathlib import Path
from typing import Any

from tilewise.kernels.mlir.frontend.child.read import looked_at
from tilewise.kernels.mlir.frontend.nest import NestRefusedError
from tilewise.kernels.mlir.network.packing import Blocks, OpBlocks, OpShape, PackedOp, packed
from tilewise.kernels.mlir.network.plan import (
    Left,
    PackedLayout,
    PackPlan,
    Remaining,
    counts,
    header_lines,
)
from tilewise.kernels.mlir.network.script import emit_packs
from tilewise.kernels.mlir.transform.module import HEADER_END
from tilewise.kernels.system.limited_child import reply_to_request, stage
from tilewise.kernels.system.typed_json import to_json

NO_FUNCTION = "packs are of a module with one func.func of one block"


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the plan of a module, `error` for an unreadable one, `refused` for unfit blocks, or
    `failed` for a script that does not apply.
    """
    from tilewise.kernels.mlir.lowering.apply import StageError

    wished = {int(number): OpBlocks(**sizes) for number, sizes in request["of_ops"].items()}
    blocks = Blocks(request["channels"], request["rows"], wished)

    def look(module: Any) -> dict[str, Any]:
        function = _only_function(module)
        if function is None:
            return {"error": NO_FUNCTION}
        if (results := _results(function)) != 1:
            return {"error": f"packs are of a function that returns one tensor, not {results}"}
        return {"plan": to_json(_plan(module, function, blocks))}

    try:
        return looked_at(Path(request["path"]), look, keeps_functions=True, splits=False)
    except NestRefusedError as refusal:
        return {"refused": str(refusal)}
    except StageError as error:
        return {"failed": str(error)}


def _results(function: Any) -> int:
    """Return how many values a function returns."""
    from iree.compiler import ir

    return len(ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).results)


def _plan(module: Any, function: Any, blocks: Blocks) -> PackPlan:
    """Return the plan of a module's only function."""
    from iree.compiler import ir

    from tilewise.kernels.mlir.lowering.apply import Diagnostics, apply_to
    from tilewise.kernels.mlir.network.child.ops import read
    from tilewise.kernels.mlir.network.child.origins import Origins, count, to_arguments

    stage("reading ops")
    with ir.Location.unknown():
        weights = to_arguments(module, function)
    seen = read(module, Origins(weights))
    ops, plain = _chosen(seen.ops, blocks)
    left = (*seen.left, *plain)
    payload = f"{function.get_asm(use_local_scope=True).rstrip()}\n"
    script = emit_packs([op for _, op in ops], seen.counts)
    stage("applying")
    begin = time.perf_counter()
    with ir.Location.unknown():
        applied = apply_to(payload, script, Diagnostics(module.context))
    apply_s = time.perf_counter() - begin
    remaining = tuple(count(applied, Origins(weights)))
    takes = len(function.regions[0].blocks[0].arguments)
    return PackPlan(
        _headed(script, remaining, left),
        payload,
        tuple(seen.depths.get(number, 0) for number in range(takes)),
        tuple(PackedLayout(number, op.op.name, op.op.where, op.sizes) for number, op in ops),
        left,
        remaining,
        apply_s,
        sum(prod(op.extents) for op in seen.ops),
    )


def _chosen(seen: list[OpShape], blocks: Blocks) -> tuple[list[tuple[int, PackedOp]], list[Left]]:
    """Return the ops to pack with their numbers, and those that stay plain."""
    if strange := sorted(set(blocks.of_ops) - set(range(1, len(seen) + 1))):
        raise NestRefusedError(f"no op has the number {strange[0]}; {len(seen)} may be packed")
    ops, left = list[tuple[int, PackedOp]](), list[Left]()
    for number, op in enumerate(seen, 1):
        wished = blocks.of_ops.get(number)
        if wished == OpBlocks():
            left.append(Left(op.name, op.where, "stays whole, as is wished for", number))
            continue
        try:
            ops.append((number, packed(op, blocks, wished)))
        except NestRefusedError as refusal:
            if wished is not None:
                raise NestRefusedError(f"op {number}, {op.where}, {refusal}") from refusal
            left.append(Left(op.name, op.where, str(refusal), number))
    return ops, left


def _only_function(module: Any) -> Any | None:
    found = [op.operation for op in module.body.operations if op.operation.name == "func.func"]
    return found[0] if len(found) == 1 and len(found[0].regions[0].blocks) == 1 else None


def _headed(script: str, remaining: tuple[Remaining, ...], left: tuple[Left, ...]) -> str:
    lines = "".join(f"// {line}\n" for line in header_lines(counts(remaining), left))
    return script.replace(HEADER_END, lines + HEADER_END, 1)


if __name__ == "__main__":
    reply_to_request(answer)
