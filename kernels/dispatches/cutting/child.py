"""The process that cuts patterns: `python -m tilewise.kernels.dispatches.cutting.child`.

It reads one JSON request on standard input, with the path of a module, and writes one JSON reply.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from tilewise.kernels.system.limited_child import reply_to_request, stage


def main() -> None:
    """Serve one request."""
    reply_to_request(answer)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The problems of a module with their patterns, and its passes over rows with theirs."""
    stage("loading MLIR")
    from iree.compiler import ir

    from tilewise.kernels.mlir.dialects import without_definitions

    without_definitions()
    from tilewise.kernels.dispatches.cutting.rows import cut_passes
    from tilewise.kernels.dispatches.cutting.trace import cut_out
    from tilewise.kernels.mlir.frontend.child.operations import operations, where

    stage("parsing")
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(Path(request["path"]).read_text())
        stage("cutting")
        ops = [(op, where(op, function, number))
               for op, function, number in operations(module.operation)]  # fmt: skip
        found = [one for op, place in ops if (one := cut_out(op, place)) is not None]
        claimed = {result: one.cut.problem for one in found for result in one.results}
        return {
            "cuts": [asdict(one.cut) for one in found],
            "passes": [asdict(one) for one in cut_passes(ops, claimed)],
        }


if __name__ == "__main__":
    main()
