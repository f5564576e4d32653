"""The process in which anybody's script is put to the proof: `python -m kernels.mlir.verify_child`.

It may die at any moment, as `kernels.mlir.child` may.
"""

import time
from typing import Any

from kernels.mlir.child import run_and_time, serve, stage


def verify_here(request: dict[str, Any]) -> dict[str, Any]:
    """Put any script to the proof: the fields of `Proof` that could be established, and more."""
    stage("import")
    from iree.compiler import ir

    from kernels.mlir import examine
    from kernels.mlir.apply import Diagnostics, StageError
    from kernels.mlir.jit import compile_ir
    from kernels.mlir.lower import lower
    from kernels.mlir.packs import lower_packs
    from kernels.mlir.payload import ENTRY
    from kernels.problem import parse_problem

    out: dict[str, Any] = {}
    try:
        with ir.Context() as context, ir.Location.unknown():
            diagnostics = Diagnostics(context)
            start = stage("apply")
            module = examine.apply_request(request, diagnostics)
            out |= {"applied": True, "apply_s": time.perf_counter() - start}
            out |= examine.examine(module)
            start = stage("lower")
            if request["problem"] is None:
                return out | examine.run_payload(request, module, diagnostics)
            examine.bufferize(module, diagnostics)
            lower_packs(module)
            text, scratch = lower(module, diagnostics)
            out["lower_s"] = time.perf_counter() - start
        start = stage("compile")
        compiled = compile_ir(text, ENTRY)
        out["compile_s"] = time.perf_counter() - start
        out |= run_and_time(parse_problem(request["problem"]), compiled, scratch, request)
    except StageError as error:
        out |= {"failure": error.failure, "message": str(error)}
    except MemoryError:
        out |= {"failure": "memory", "message": "out of memory"}
    return out


if __name__ == "__main__":
    serve(verify_here)
