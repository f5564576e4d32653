"""Random generics: each is recognised, and its problem computes what it does, or it is refused."""

import random

import numpy as np
import pytest

from tests.kernels.mlir.frontend.generics import WIDENED, Generic, random_generic
from tilewise.kernels.mlir.frontend.graph import Arrangement, Occurrence
from tilewise.kernels.mlir.frontend.read import read_module
from tilewise.kernels.oracle.operands import Array, to_bf16
from tilewise.kernels.oracle.reference import reference
from tilewise.kernels.problem import parse_problem

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

COUNT = 200
STORED = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "i8": np.int8, "i32": np.int32}


def arranged(value: Array, how: Arrangement) -> Array:
    return value.transpose(how.axes).reshape(how.shape)


def stored(values: Array, dtype: str) -> Array:
    """Small whole numbers in a dtype, as the reference takes them."""
    if dtype == "bf16":
        return to_bf16(values.astype(np.float32))
    return values.astype(STORED[dtype])


def check(case: Generic, found: Occurrence, rng: np.random.Generator) -> None:
    """Compare the op's result with that of its problem on operands that were rearranged."""
    a, b, c = (rng.integers(-4, 5, shape).astype(np.int64) for shape in case.operand_shapes)
    expected = case.computed(a, b, c if case.accumulates else np.zeros_like(c))
    problem = parse_problem(found.problem)
    assert problem.element.name == case.dtype
    assert problem.accumulates == case.accumulates
    first, second = (b, a) if found.is_swapped else (a, b)
    operands = {
        "A": stored(arranged(first, found.a), case.dtype),
        "B": stored(arranged(second, found.b), case.dtype),
        "C": stored(arranged(c, found.c), WIDENED[case.dtype]),
    }
    value = reference(problem, operands).value
    np.testing.assert_array_equal(value, arranged(expected, found.c), err_msg=found.problem)


def test_random_generics_are_recognised_rightly_or_refused() -> None:
    rng = random.Random(25)
    cases = {f"f{i}": random_generic(rng) for i in range(COUNT)}
    imported = read_module("\n".join(case.text(name) for name, case in cases.items()).encode())
    found = {one.where.split()[0].removeprefix("@"): one for one in imported.occurrences}
    refused = {one.where.split()[0].removeprefix("@") for one in imported.skipped}
    numbers = np.random.default_rng(25)
    for name, case in cases.items():
        if case.trap == "none":
            assert name in found, (name, case, [s for s in imported.skipped if name in s.where])
            check(case, found[name], numbers)
        else:
            assert name not in found, (name, case, found.get(name))
            assert name in refused, (name, case)
    assert len(found) > COUNT / 2
    assert len(refused) > COUNT / 10
    assert any(not one.is_plain for one in found.values())
    assert any(one.is_swapped for one in found.values())
