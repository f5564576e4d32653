"""The process in which a module is packed: `python -m kernels.mlir.network.child.pack`.

It reads one JSON request on standard input, with the path of the module, writes one JSON reply on
standard output, and may die at any moment: `kernels.mlir.network.pack` turns that into an error.
"""

import time
from math import prod
from pathlib import Path
from typing import Any

from kernels.mlir.frontend.child.read import looked_at
from kernels.mlir.frontend.nest import RefusedError
from kernels.mlir.network.blocks import Blocks, OpBlocks
from kernels.mlir.network.packing import PackedOp, packed
from kernels.mlir.network.plan import Left, Packed, PackPlan, Remaining, counts, told
from kernels.mlir.network.script import emit_packs
from kernels.mlir.transform.module import HEADER_END
from kernels.system.limited_child import reply_to_request, stage
from kernels.system.typed_json import to_json


def main() -> None:
    """Serve one request."""
    reply_to_request(answer)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The plan of a module; or `error` where it cannot be read, `refused` where blocks do not fit,
    `failed` where the script does not apply.
    """
    wished = {int(number): OpBlocks(*sizes) for number, sizes in request["of_ops"].items()}
    blocks = Blocks(request["channels"], request["rows"], wished)
    return looked_at(Path(request["path"]), lambda module: _packed(module, blocks))


def _packed(module: Any, blocks: Blocks) -> dict[str, Any]:
    from iree.compiler import ir

    from kernels.mlir.lowering.apply import Diagnostics, StageError, apply_to
    from kernels.mlir.network.child.counting import count
    from kernels.mlir.network.child.layers import layers
    from kernels.mlir.network.child.origins import Origins
    from kernels.mlir.network.child.read import Seen, read
    from kernels.mlir.network.child.weights import to_arguments

    function = _only_function(module)
    if function is None:
        return {"error": "packs are of a module with one func.func on tensors"}
    stage("reading ops")
    with ir.Location.unknown():
        weights = to_arguments(module, function)
    seen: Seen = read(module, Origins(weights))
    if strange := sorted(set(blocks.of_ops) - set(range(1, len(seen.ops) + 1))):
        return {"refused": f"no op has the number {strange[0]}; {len(seen.ops)} may be packed"}
    ops, left = list[tuple[int, PackedOp]](), list(seen.left)
    for number, op in enumerate(seen.ops, 1):
        wished = blocks.of_ops.get(number)
        try:
            ops.append((number, packed(op, blocks, wished)))
        except RefusedError as refusal:
            if wished is not None and any(vars(wished).values()):
                return {"refused": f"op {number}, {op.where}, {refusal}"}
            left.append(Left(op.name, op.where, str(refusal), number))
    payload = f"{function.get_asm(use_local_scope=True).rstrip()}\n"
    script = emit_packs([op for _, op in ops], seen.counts)
    stage("applying")
    begin = time.perf_counter()
    try:
        with ir.Location.unknown():
            applied = apply_to(payload, script, Diagnostics(module.context))
    except StageError as error:
        return {"failed": str(error)}
    apply_s = time.perf_counter() - begin
    remaining = tuple(count(applied, Origins(weights)))
    takes = len(ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).inputs)
    plan = PackPlan(
        _headed(script, remaining, left),
        payload,
        tuple(seen.depths.get(number, 0) for number in range(takes)),
        tuple(Packed(number, op.op.name, op.op.where, op.sizes) for number, op in ops),
        tuple(left),
        remaining,
        apply_s,
        tuple(layers(applied, _places(payload, [op for _, op in ops]))),
        sum(prod(op.extents) for op in seen.ops),
    )
    return {"plan": to_json(plan)}


def _places(payload: str, ops: list[PackedOp]) -> dict[str, str]:
    """The places of packed ops in their module, by their places in the payload."""
    from iree.compiler import ir

    from kernels.mlir.frontend.child.operations import operations, where
    from kernels.mlir.network.child.layers import at

    there: dict[str, list[str]] = {}
    for op, function, number in operations(ir.Module.parse(payload).operation):
        there.setdefault(op.name, []).append(at(where(op, function, number)))
    return {there[one.op.name][one.op.number]: one.op.where for one in ops}


def _only_function(module: Any) -> Any | None:
    found = [op.operation for op in module.body.operations if op.operation.name == "func.func"]
    return found[0] if len(found) == 1 and len(found[0].regions[0].blocks) == 1 else None


def _headed(script: str, remaining: tuple[Remaining, ...], left: list[Left]) -> str:
    lines = "".join(f"// {line}\n" for line in told(counts(remaining), left))
    return script.replace(HEADER_END, lines + HEADER_END, 1)


if __name__ == "__main__":
    main()
