"""What proving children share: stages, replies, and a checked call.

MLIR and LLVM are imported in functions, within the stages and limits of a request.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Any

from tilewise.kernels.mlir.payload.function import ENTRY, argument_names
from tilewise.kernels.mlir.proof.proof import ProofReply
from tilewise.kernels.oracle.operands import Array
from tilewise.kernels.problem import Problem
from tilewise.kernels.system.limited_child import reply_to_request, stage
from tilewise.kernels.system.typed_json import to_json

if TYPE_CHECKING:
    from tilewise.kernels.mlir.proof.child.timing import Timing
    from tilewise.kernels.oracle.reference import Expected


def serve(answer: Callable[[dict[str, Any]], ProofReply]) -> None:
    """Read one request, and write the reply of `answer` within the request's limits."""
    reply_to_request(lambda request: dict(to_json(answer(request))))


class Finding:
    """What a child establishes step by step, kept in `found` when it fails."""

    def __init__(self) -> None:
        self.found = ProofReply()
        self._processor = 0.0

    def note(self, **parts: Any) -> None:
        """Set attributes of `found`."""
        self.found = replace(self.found, **parts)

    def apply(self, applied: Callable[[], Any]) -> Any:
        """Return the module that `applied` makes; note success and duration."""
        self._processor = time.process_time()
        begin = stage("apply")
        module = applied()
        self.note(applied=True, apply_s=time.perf_counter() - begin)
        return module

    def compile(self, lowered: Callable[[], Any], effort: int = 3) -> Any:
        """Return the machine code of what `lowered` gives, and its scratch buffers."""
        from tilewise.kernels.mlir.lowering.jit import compile_ir

        begin = stage("lower")
        text, scratch = lowered()
        self.note(lower_s=time.perf_counter() - begin)
        begin = stage("compile")
        compiled = compile_ir(text, ENTRY, effort)
        self.note(
            compile_s=time.perf_counter() - begin, processor_s=time.process_time() - self._processor
        )
        return compiled, scratch


def establish(steps: Callable[[Finding, Any], None]) -> ProofReply:
    """Run `steps` in an MLIR context; return what they found, and why they stopped if they did."""
    stage("import")
    from iree.compiler import ir

    from tilewise.kernels.mlir.dialects import without_definitions
    from tilewise.kernels.mlir.lowering.apply import Diagnostics, StageError

    without_definitions()
    finding = Finding()
    try:
        with ir.Context() as context, ir.Location.unknown():
            steps(finding, Diagnostics(context))
    except StageError as error:
        finding.note(failure=error.failure, message=str(error))
    except MemoryError:
        finding.note(failure="memory", message="out of memory")
    return finding.found


@dataclass(frozen=True)
class Passing:
    """How a function takes a problem's operands, and returns its result.

    Attributes:
        names: of operands, in the function's order; C is last.
        argument: converts an operand by name.
        result: converts what the function returns to the problem's C.
    """

    names: Callable[[Problem], tuple[str, ...]] = argument_names
    argument: Callable[[str, Array], Array] = lambda _, array: array
    result: Callable[[Array], Array] = lambda array: array


def run_and_time(
    problem: Problem,
    compiled: Any,
    scratch: Any,
    request: dict[str, Any],
    passing: Passing = Passing(),
    check_further: Callable[[], dict[str, Any]] = dict,
) -> dict[str, Any]:
    """Check one call against the reference, then time it.

    `check_further` runs after a right result; what it returns is noted, and a failure ends the
    proof.
    """
    from tilewise.kernels.mlir.proof.child.timing import time_call

    call, out = check_call(problem, compiled, scratch, request["seed"], passing)
    if "failure" not in out:
        out |= check_further()
    if "failure" in out:
        return out
    stage("time")
    return out | speed(problem, time_call(call, request["repeat_s"]))


def speed(problem: Problem, timing: "Timing") -> dict[str, Any]:
    """Return the fields of an outcome that the time of a call establishes."""
    median, high, low = (
        problem.flops / seconds / 1e9 for seconds in (timing.median, timing.high, timing.low)
    )
    return {"gflops": median, "interval": (high, low), "time_us": timing.median * 1e6}


def check_call(
    problem: Problem, compiled: Any, scratch: Any, seed: int, passing: Passing = Passing()
) -> tuple[Any, dict[str, Any]]:
    """Call once on random operands, with poisoned result and scratch.

    Return the call, to be repeated, and the fields of an outcome that it established.
    """
    from tilewise.kernels.mlir.lowering.functions import poisoned
    from tilewise.kernels.mlir.lowering.jit import RepeatedCall
    from tilewise.kernels.oracle.operands import make_operands
    from tilewise.kernels.oracle.reference import reference

    stage("reference")
    operands = make_operands(problem, seed)
    expected = reference(problem, operands)
    buffers = poisoned(scratch)
    arguments = {name: passing.argument(name, operands[name]) for name in passing.names(problem)}
    before = {name: array.copy() for name, array in arguments.items() if name != "C"}
    stage("run")
    call = RepeatedCall(compiled, [*arguments.values(), *buffers], arguments["C"])
    call()
    out = compared(problem, passing.result(call.returned()), expected)
    changed = [name for name, array in before.items() if (arguments[name] != array).any()]
    if changed:
        out |= {"failure": "wrong", "message": f"operand {changed[0]} was overwritten"}
    return call, out


def compared(problem: Problem, result: Array, expected: "Expected") -> dict[str, Any]:
    """Return the fields of an outcome that the result of a run establishes."""
    from tilewise.kernels.oracle.reference import compare

    error, tolerance = compare(problem, result, expected)
    out: dict[str, Any] = {"executed": True, "tolerance": tolerance}
    out["max_error"] = error if isfinite(error) else None  # JSON has no infinity
    if not error <= tolerance:
        off = f"off by {error:g}" if isfinite(error) else "no finite number"
        message = f"the result is {off}, and {tolerance:g} is allowed"
        out |= {"failure": "wrong", "message": message}
    return out
