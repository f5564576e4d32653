"""One compiled call: run, compared with the reference, and timed."""

from math import isfinite
from typing import Any

from kernels.system.limited_child import stage


def run_and_time(
    problem: Any, compiled: Any, scratch: Any, request: dict[str, Any]
) -> dict[str, Any]:
    """Check one call against the reference, then time."""
    from kernels.mlir.proof.child.timing import time_call

    call, out = check_call(problem, compiled, scratch, request["seed"])
    if "failure" in out:
        return out
    stage("time")
    timing = time_call(call, request["repeat_s"])
    rates = [problem.flops / t / 1e9 for t in (timing.median, timing.high, timing.low)]
    return out | {
        "gflops": rates[0],
        "interval": [rates[1], rates[2]],
        "time_us": timing.median * 1e6,
    }


def check_call(problem: Any, compiled: Any, scratch: Any, seed: int) -> tuple[Any, dict[str, Any]]:
    """Call once on random operands, a poisoned result and poisoned scratch.

    Returns:
        The call, to be repeated, and the fields of `Proof` that it established.
    """
    from kernels.mlir.lowering.jit import Call
    from kernels.mlir.lowering.signature import poisoned
    from kernels.mlir.payload.function import argument_names
    from kernels.oracle.operands import make_operands
    from kernels.oracle.reference import reference
    from kernels.oracle.tolerance import compare

    stage("reference")
    operands = make_operands(problem, seed)
    expected = reference(problem, operands)
    buffers = poisoned(scratch)
    before = {name: operands[name].copy() for name in operands if name != "C"}
    arrays = [operands[name] for name in argument_names(problem)]
    stage("run")
    call = Call(compiled, [*arrays, *buffers], operands["C"])
    call()
    error, tolerance = compare(problem, call.returned(), expected)
    out: dict[str, Any] = {"executed": True, "tolerance": tolerance}
    out["max_error"] = error if isfinite(error) else None  # JSON has no infinity
    changed = [name for name, array in before.items() if (operands[name] != array).any()]
    if changed:
        out |= {"failure": "wrong", "message": f"operand {changed[0]} was overwritten"}
    elif not error <= tolerance:
        off = f"off by {error:g}" if isfinite(error) else "no finite number"
        message = f"the result is {off}, and {tolerance:g} is allowed"
        out |= {"failure": "wrong", "message": message}
    return call, out
