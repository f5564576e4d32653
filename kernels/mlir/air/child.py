"""The process in which an air script is applied, inspected and executed.

`python -m kernels.mlir.air.child` answers one request as `kernels.mlir.child` does. What
runs is the very IR that the script made, with its memory spaces: only the packs and
unpacks become loops, and the parallel loops run one iteration after the other.
"""

import time
from typing import Any

from kernels.mlir.child import check_call, serve, stage


def prove_here(request: dict[str, Any]) -> dict[str, Any]:
    """Prove one script in this process: the fields of `Proof` that could be established."""
    stage("import")
    from iree.compiler import ir

    from kernels.mlir.air.inspect import check_wishes, places
    from kernels.mlir.air.schedule import KStreaming, require_streamed
    from kernels.mlir.apply import Diagnostics, StageError, apply_script
    from kernels.mlir.jit import compile_ir
    from kernels.mlir.lower import lower
    from kernels.mlir.packs import lower_packs
    from kernels.mlir.payload import ENTRY
    from kernels.problem import parse_problem

    out: dict[str, Any] = {}
    problem = require_streamed(parse_problem(request["problem"]))
    schedule = KStreaming.from_json(request["schedule"])
    try:
        with ir.Context() as context, ir.Location.unknown():
            diagnostics = Diagnostics(context)
            start = stage("apply")
            module = apply_script(request["module"], diagnostics)
            out |= {"applied": True, "apply_s": time.perf_counter() - start}
            stage("inspect")
            check_wishes(places(module), problem, schedule)
            if request["runs"] != request["problem"]:
                stage("apply to what is run")
                problem = require_streamed(parse_problem(request["runs"]))
                module = apply_script(request["runs_module"], diagnostics)
                check_wishes(places(module), problem, schedule)
            start = stage("lower")
            lower_packs(module)
            text, scratch = lower(module, diagnostics)
            out["lower_s"] = time.perf_counter() - start
        start = stage("compile")
        compiled = compile_ir(text, ENTRY, effort=1)
        out["compile_s"] = time.perf_counter() - start
        out |= check_call(problem, compiled, scratch, request["seed"])[1]
    except StageError as error:
        out |= {"failure": error.failure, "message": str(error)}
    except MemoryError:
        out |= {"failure": "memory", "message": "out of memory"}
    return out


if __name__ == "__main__":
    serve(prove_here)
