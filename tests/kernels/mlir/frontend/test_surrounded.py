"""What a problem takes in around an op is what the module computes there, number by number."""

import random
from collections import Counter

import numpy as np
import pytest

from tests.kernels.mlir.frontend.generics import WIDENED
from tests.kernels.mlir.frontend.surrounded import Surrounded, random_surrounded
from tests.kernels.mlir.frontend.test_generics import arranged, stored
from tilewise.kernels.mlir.frontend.graph import Occurrence
from tilewise.kernels.mlir.frontend.read import read_module
from tilewise.kernels.oracle.operands import Array
from tilewise.kernels.oracle.reference import reference
from tilewise.kernels.problem import Problem, parse_problem

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

COUNT = 250
AFTER = {"bias": "bias", "relu": "relu", "transpose": "transpose_c"}


def check(case: Surrounded, found: Occurrence, rng: np.random.Generator) -> None:
    problem = parse_problem(found.problem)
    sources = [rng.integers(-4, 5, case.source_shape(i)).astype(np.int64) for i in (0, 1)]
    bias = rng.integers(-9, 10, case.generic.operand_shapes[2][case.along]).astype(np.int64)
    operands = problem_inputs(case, found, problem, sources)
    if problem.has_bias:
        operands["bias"] = stored(
            columns(case, found, problem, bias), WIDENED[problem.element.name]
        )
    operands["C"] = stored(np.zeros(found.c.shape, np.int64), WIDENED[problem.element.name])
    expected = result(case, found, sources, bias)
    value = reference(problem, operands).value
    np.testing.assert_array_equal(value, arranged(expected, found.c), err_msg=found.problem)


def problem_inputs(
    case: Surrounded, found: Occurrence, problem: Problem, sources: list[Array]
) -> dict[str, Array]:
    operands = {}
    for name, number, how, word in (
        ("A", int(found.is_swapped), found.a, "transpose_a"),
        ("B", int(not found.is_swapped), found.b, "transpose_b"),
    ):
        value = case.input(
            sources[number], number,
            padded="pad" not in found.fused, transposed=word not in found.fused,
        )  # fmt: skip
        operands[name] = stored(arranged(value, how), problem.element.name)
    return operands


def columns(case: Surrounded, found: Occurrence, problem: Problem, bias: Array) -> Array:
    """The bias as the problem has it; it may vary along the columns alone."""
    spread = case.spread(bias)
    if "transpose_c" in found.fused:
        spread = spread.transpose(case.order)
    whole = arranged(spread, found.c)
    if problem.has_channels_first:
        whole = np.moveaxis(whole, 1, -1)
    rows: Array = whole.reshape(-1, whole.shape[-1])
    assert (rows == rows[0]).all(), "a bias that varies along rows"
    first: Array = rows[0]
    return first


def result(case: Surrounded, found: Occurrence, sources: list[Array], bias: Array) -> Array:
    """The module's values after the steps that were taken in, which are the first ones."""
    a, b = (case.input(one, i, padded=True, transposed=True) for i, one in enumerate(sources))
    value = case.generic.computed(a, b, np.zeros(case.generic.operand_shapes[2], np.int64))
    taken = [step for step in case.after if AFTER[step] in found.fused]
    assert taken == list(case.after[: len(taken)]), "a step was passed over"
    at = case.spread(bias)
    for step in taken:
        if step == "transpose":
            value, at = value.transpose(case.order), at.transpose(case.order)
        else:
            value = value + at if step == "bias" else np.maximum(value, 0)
    return value


def test_surroundings_that_are_taken_in_compute_the_same() -> None:
    rng = random.Random(11)
    cases = {f"f{i}": random_surrounded(rng) for i in range(COUNT)}
    imported = read_module("\n".join(case.text(name) for name, case in cases.items()).encode())
    assert not imported.skipped
    numbers, fused = np.random.default_rng(11), Counter[str]()
    for one in imported.occurrences:
        case = cases.pop(one.where.split()[0].removeprefix("@"))
        check(case, one, numbers)
        fused.update(one.fused)
        assert case.after[:1] != ("relu",) or "relu" in one.fused
    assert not cases
    for word in ("pad", "transpose_a", "transpose_b", "transpose_c", "bias", "relu"):
        assert fused[word] >= 10, fused
