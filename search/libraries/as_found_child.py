"""Run an op as a module has it: `python -m tilewise.search.libraries.as_found_child`."""

import time
from math import prod
from typing import Any

import numpy as np

from tilewise.kernels.dispatches.patterns.pattern import ENTRY, SCOPE, WEIGHTS, Pattern
from tilewise.kernels.mlir.iree.runtime import LoadedModule, Parameters, open_device
from tilewise.kernels.oracle.fast_algorithms import expected_by
from tilewise.kernels.oracle.operands import Array, empty_aligned, make_operands, poison
from tilewise.kernels.oracle.reference import compare, reference
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.system.limited_child import reply_to_request, stage
from tilewise.kernels.system.typed_json import from_json, to_json
from tilewise.search.libraries.gain import Case, FormTimes
from tilewise.search.timing.measure import interleave

ROUNDS = 30


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Check the form with the kernel, and time all forms, in each case."""
    return {"cases": [_answer(from_json(Case, one), request) for one in request["cases"]]}


def _answer(case: Case, request: dict[str, Any]) -> Any:
    stage("load")
    problem, pattern = parse_problem(case.problem), case.pattern
    operands = make_operands(problem)
    if pattern.bias:
        operands["bias"][...] = float(pattern.bias)
    given = _as_found(problem, pattern, operands)
    weights = None
    if problem.has_constant_weights:
        weights = Parameters(SCOPE, {WEIGHTS: given.pop(1)[0]})
    out = empty_aligned(pattern.result.shape, operands["C"].dtype.type)
    given.append((out, pattern.result.element))
    device = open_device(request["threads"])
    modules = {
        name: LoadedModule(bytes.fromhex(code), device, weights)
        for name, code in request["codes"].items()
    }
    stage("compare")
    schedule = Schedule.from_json(list(case.steps))
    exact = reference(problem, operands)
    expected = expected_by(problem, operands, exact, schedule.algorithm)
    poison(out)
    modules[""].bind(ENTRY, given)(1)
    axes = pattern.orders[-1] or tuple(range(out.ndim))
    result = out.transpose(axes).reshape(problem.operand_shapes["C"])
    error, tolerance = compare(problem, result, expected)
    if not case.is_timed:
        return to_json(FormTimes(error, tolerance, {}))
    stage("time")
    runs = [module.bind(ENTRY, given) for module in modules.values()]
    until = time.monotonic() + request["budget_s"]
    samples = interleave(runs, ROUNDS, request["threads"], until=until)
    times = {name: tuple(one.times) for name, one in zip(modules, samples, strict=True)}
    return to_json(FormTimes(error, tolerance, times))


def _as_found(
    problem: Problem, pattern: Pattern, operands: dict[str, Array]
) -> list[tuple[Array, str]]:
    """Return the problem's operands in the axis order of the pattern."""
    names = ["A", "B", *problem.extras, *["C"] * problem.accumulates]
    if pattern.bias:
        names.remove("bias")
    found = []
    for name, value, axes in zip(names, pattern.operands, pattern.orders[:-1], strict=True):
        shape = value.shape
        order = axes or tuple(range(len(shape)))
        plain = operands[name].reshape([shape[axis] for axis in order])
        array = empty_aligned(shape, plain.dtype.type)
        assert prod(shape) == plain.size
        array[...] = plain.transpose(np.argsort(order)) if shape else plain
        found.append((array, value.element))
    return found


if __name__ == "__main__":
    reply_to_request(answer)
