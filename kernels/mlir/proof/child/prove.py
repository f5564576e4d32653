"""The process in which a script is applied, compiled and run: `python -m
kernels.mlir.proof.child.prove`.

It reads one JSON request on standard input, writes one JSON reply on standard output,
and may die at any moment: the parent (`kernels.mlir.proof.prove`) turns that into a failure.
Stages are announced on standard error, so that the parent can say which one hung.
"""

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from math import isfinite
from typing import Any

from kernels.mlir.proof.prove import MOST_PRINTED, STAGE

LIBRARIES = 2 << 30  # address space of the compilers themselves, most of it never resident


def main() -> None:
    """Serve one request to prove a script."""
    serve(prove_here)


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Read one request, and write what `answer` makes of it within the request's limits."""
    request = json.load(sys.stdin)
    reply_to = _private_stdout()
    limit(request["seconds"], request["memory_bytes"])
    reply = answer(request)
    with os.fdopen(reply_to, "w") as out:
        json.dump(reply, out)


def _private_stdout() -> int:
    """Keep standard output for the reply; whatever MLIR prints goes to standard error."""
    kept = os.dup(1)
    os.dup2(2, 1)
    return kept


def limit(seconds: float, memory_bytes: int) -> None:
    """Bounds that hold even if the parent is gone: processor time, address space, output."""
    processor = int(seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (processor, processor + 1))
    space = memory_bytes + LIBRARIES
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_PRINTED, MOST_PRINTED))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it, and MLIR would print on
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def stage(name: str) -> float:
    """Announce a stage; the time at which it began."""
    print(f"{STAGE}{name}", file=sys.stderr, flush=True)
    return time.perf_counter()


class Finding:
    """What a child establishes step by step: fields of `Proof` and more, kept when it fails.

    Attributes:
        fields: what is known so far.
    """

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self._processor = 0.0

    def apply(self, applied: Callable[[], Any]) -> Any:
        """The module that `applied` makes; that it could, and how long it took."""
        self._processor = time.process_time()
        begin = stage("apply")
        module = applied()
        self.fields |= {"applied": True, "apply_s": time.perf_counter() - begin}
        return module

    def compile(self, lowered: Callable[[], Any], effort: int = 3) -> Any:
        """The machine code of what `lowered` gives, and the scratch buffers that it takes."""
        from kernels.mlir.lowering.jit import compile_ir
        from kernels.mlir.payload.function import ENTRY

        begin = stage("lower")
        text, scratch = lowered()
        self.fields["lower_s"] = time.perf_counter() - begin
        begin = stage("compile")
        compiled = compile_ir(text, ENTRY, effort)
        self.fields |= {
            "compile_s": time.perf_counter() - begin,
            "processor_s": time.process_time() - self._processor,
        }
        return compiled, scratch


def establish(steps: Callable[[Finding, Any], None]) -> dict[str, Any]:
    """Run `steps` in an MLIR context; what they found, and why they stopped if they did.

    Args:
        steps: takes what is found so far and the context's `Diagnostics`.
    """
    stage("import")
    from iree.compiler import ir

    from kernels.mlir.lowering.apply import Diagnostics, StageError

    finding = Finding()
    try:
        with ir.Context() as context, ir.Location.unknown():
            steps(finding, Diagnostics(context))
    except StageError as error:
        finding.fields |= {"failure": error.failure, "message": str(error)}
    except MemoryError:
        finding.fields |= {"failure": "memory", "message": "out of memory"}
    return finding.fields


def prove_here(request: dict[str, Any]) -> dict[str, Any]:
    """Prove one script in this process: the fields of `Proof` that could be established."""
    from kernels.problem import parse_problem

    problem = parse_problem(request["problem"])

    def steps(finding: Finding, diagnostics: Any) -> None:
        from kernels.mlir.lowering.apply import apply_script, check_structure
        from kernels.mlir.lowering.to_llvm import lower
        from kernels.problem.iteration import iteration_space

        module = finding.apply(lambda: apply_script(request["module"], diagnostics))
        if request.get("apply_only"):
            finding.fields["transformed"] = str(module)
            return
        space = iteration_space(problem)
        finding.fields["vectorised"] = check_structure(
            module, space.extent(space.col), request.get("lanes", 0)
        )
        compiled, scratch = finding.compile(lambda: lower(module, diagnostics))
        finding.fields |= run_and_time(problem, compiled, scratch, request)

    return establish(steps)


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
    from kernels.mlir.payload.function import argument_names
    from kernels.mlir.proof.child.signature import poisoned
    from kernels.oracle.reference import compare, make_operands, reference

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


if __name__ == "__main__":
    main()
