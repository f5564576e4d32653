"""What every child that proves something shares: its limits, its stages, and its one reply.

One compiled call: run, compared with the reference, and timed.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from tilewise.kernels.mlir.proof.proof import Found
from tilewise.kernels.oracle.operands import Array
from tilewise.kernels.problem import Problem
from tilewise.kernels.system.limited_child import reply_to_request, stage
from tilewise.kernels.system.typed_json import to_json


def serve(answer: Callable[[dict[str, Any]], Found]) -> None:
    """Read one request, and write what `answer` makes of it within the request's limits."""
    reply_to_request(lambda request: dict(to_json(answer(request))))


class Finding:
    """What a child establishes step by step, kept when it fails.

    Attributes:
        found: what is known so far.
    """

    def __init__(self) -> None:
        self.found = Found()
        self._processor = 0.0

    def note(self, **parts: Any) -> None:
        """Take in attributes of `Found` that are known now."""
        self.found = replace(self.found, **parts)

    def apply(self, applied: Callable[[], Any]) -> Any:
        """The module that `applied` makes; that it could, and how long it took."""
        self._processor = time.process_time()
        begin = stage("apply")
        module = applied()
        self.note(applied=True, apply_s=time.perf_counter() - begin)
        return module

    def compile(self, lowered: Callable[[], Any], effort: int = 3) -> Any:
        """The machine code of what `lowered` gives, and the scratch buffers that it takes."""
        from tilewise.kernels.mlir.lowering.jit import compile_ir
        from tilewise.kernels.mlir.payload.function import ENTRY

        begin = stage("lower")
        text, scratch = lowered()
        self.note(lower_s=time.perf_counter() - begin)
        begin = stage("compile")
        compiled = compile_ir(text, ENTRY, effort)
        self.note(
            compile_s=time.perf_counter() - begin,
            processor_s=time.process_time() - self._processor,
        )
        return compiled, scratch


def establish(steps: Callable[[Finding, Any], None]) -> Found:
    """Run `steps` in an MLIR context; what they found, and why they stopped if they did.

    Args:
        steps: takes what is found so far and the context's `Diagnostics`.
    """
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


def _names(problem: Problem) -> tuple[str, ...]:
    from tilewise.kernels.mlir.payload.function import argument_names

    return argument_names(problem)


def _as_stored(_name: str, array: Array) -> Array:
    return array


def _as_returned(array: Array) -> Array:
    return array


@dataclass(frozen=True)
class Passing:
    """How a function takes a problem's operands, and gives its result back.

    Attributes:
        names: of a problem's operands, in the order in which the function takes them; C is last.
        argument: what the function takes for an operand of a name.
        result: of what the function returns the problem's C.
    """

    names: Callable[[Problem], tuple[str, ...]] = _names
    argument: Callable[[str, Array], Array] = _as_stored
    result: Callable[[Array], Array] = _as_returned


def run_and_time(
    problem: Problem,
    compiled: Any,
    scratch: Any,
    request: dict[str, Any],
    passing: Passing = Passing(),
    check_further: Callable[[], dict[str, Any]] = dict,
) -> dict[str, Any]:
    """Check one call against the reference, then time.

    Args:
        problem: whose operands the function takes.
        compiled: the function.
        scratch: buffers that it takes.
        request: with the seed, and for how long to time.
        passing: how the function takes its operands.
        check_further: called where the result is right; what it returns is noted, and a failure
            ends the proof.
    """
    from tilewise.kernels.mlir.proof.child.timing import time_call

    call, out = check_call(problem, compiled, scratch, request["seed"], passing)
    if "failure" not in out:
        out |= check_further()
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


def check_call(
    problem: Problem, compiled: Any, scratch: Any, seed: int, passing: Passing = Passing()
) -> tuple[Any, dict[str, Any]]:
    """Call once on random operands, a poisoned result and poisoned scratch.

    Returns:
        The call, to be repeated, and the fields of `Proof` that it established.
    """
    from tilewise.kernels.mlir.lowering.functions import poisoned
    from tilewise.kernels.mlir.lowering.jit import Call
    from tilewise.kernels.oracle.operands import make_operands
    from tilewise.kernels.oracle.reference import compare, reference

    stage("reference")
    operands = make_operands(problem, seed)
    expected = reference(problem, operands)
    buffers = poisoned(scratch)
    arguments = {name: passing.argument(name, operands[name]) for name in passing.names(problem)}
    before = {name: array.copy() for name, array in arguments.items() if name != "C"}
    stage("run")
    call = Call(compiled, [*arguments.values(), *buffers], arguments["C"])
    call()
    error, tolerance = compare(problem, passing.result(call.returned()), expected)
    out: dict[str, Any] = {"executed": True, "tolerance": tolerance}
    out["max_error"] = error if isfinite(error) else None  # JSON has no infinity
    changed = [name for name, array in before.items() if (arguments[name] != array).any()]
    if changed:
        out |= {"failure": "wrong", "message": f"operand {changed[0]} was overwritten"}
    elif not error <= tolerance:
        off = f"off by {error:g}" if isfinite(error) else "no finite number"
        message = f"the result is {off}, and {tolerance:g} is allowed"
        out |= {"failure": "wrong", "message": message}
    return call, out
