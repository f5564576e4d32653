"""What a pass computes exactly, operation by operation, against NumPy on rows."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewise.kernels.dispatches.passes.alone import expected
from tilewise.kernels.dispatches.passes.code import compiled_pass
from tilewise.kernels.dispatches.passes.row_pass import MOST_ON_STACK, Reading, RowPass, check
from tilewise.kernels.dispatches.patterns.graph import Value
from tilewise.kernels.dispatches.patterns.pattern import Pattern
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.mlir.frontend.program import ScalarOp
from tilewise.kernels.native.passes.rows.program import Source
from tilewise.kernels.target import Target

READ = ScalarOp("read")


def of_rows(
    columns: int, *body: ScalarOp, row: int | None = None, table: tuple[int, ...] = ()
) -> RowPass:
    """Three rows of an operand, which it reads first."""
    kind = Value("%arg0", (3, columns), "f32")
    step = None if table else (columns if row is None else row)
    reading = Reading(0, Source("f32", is_wide=True, row=step), table)
    pattern = Pattern((kind,), kind, "", 1, (), ())
    return RowPass(3, columns, (reading,), (READ, *body), len(body), True, pattern, (), ())


CASES: dict[str, Callable[[Any], Any]] = {
    "add": lambda x: x + x,
    "subtract": lambda x: x - x,
    "multiply": lambda x: x * x,
    "divide": lambda x: x / x,
    "max": lambda x: x,
    "negate": lambda x: -x,
    "abs": abs,
    "exp": np.exp,
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf),
}


@pytest.mark.parametrize("name", CASES)
def test_each_operation_is_numpys(name: str) -> None:
    x = np.random.default_rng(2).standard_normal((3, 7))
    count = 2 if name in ("add", "subtract", "multiply", "divide", "max") else 1
    one = of_rows(7, ScalarOp(name, (0,) * count))
    np.testing.assert_allclose(expected(one, [x]), CASES[name](x), atol=1e-12)


@pytest.mark.parametrize("predicate", range(16))
def test_comparisons_are_those_that_the_code_makes(predicate: int) -> None:
    x = np.array([[1.0, 2.0, np.nan], [2.0, 1.0, 0.0], [0.5, 0.5, -1.0]])
    body = (
        ScalarOp("number", (), 1.0),
        ScalarOp("compare", (0, 1), predicate),
        ScalarOp("number", (), 5.0),
        ScalarOp("number", (), 7.0),
        ScalarOp("select", (2, 3, 4)),
    )
    found = expected(of_rows(3, *body), [x])
    known: dict[int, Callable[[Any], bool]] = {
        0: lambda v: False, 1: lambda v: v == 1, 2: lambda v: v > 1, 3: lambda v: v >= 1,
        4: lambda v: v < 1, 5: lambda v: v <= 1, 6: lambda v: v == v and v != 1,
        7: lambda v: v == v, 8: lambda v: v != v or v == 1, 9: lambda v: not v <= 1,
        10: lambda v: not v < 1, 11: lambda v: not v >= 1, 12: lambda v: not v > 1,
        13: lambda v: v != 1, 14: lambda v: v != v, 15: lambda v: True,
    }  # fmt: skip
    assert found.tolist() == [[5.0 if known[predicate](v) else 7.0 for v in row] for row in x]


def test_rows_begin_where_a_table_says() -> None:
    x = np.arange(12.0).reshape(3, 4)
    assert expected(of_rows(2, table=(10, 0, 5)), [x]).tolist() == [[10, 11], [0, 1], [5, 6]]


def test_a_row_that_no_worker_has_memory_for_is_refused(host: Target) -> None:
    body = (
        ScalarOp("exp", (0,)),
        ScalarOp("row sum", (1,)),
        ScalarOp("divide", (1, 2)),
    )
    check(of_rows(MOST_ON_STACK // 8, *body))
    with pytest.raises(LoweringError, match="too long to be kept"):
        compiled_pass(of_rows(MOST_ON_STACK, *body), host)


def test_names_tell_codes_apart(host: Target) -> None:
    plain, other = of_rows(32, ScalarOp("exp", (0,))), of_rows(32, ScalarOp("erf", (0,)))
    names = [
        compiled_pass(one, host.with_threads(n)).name for one in (plain, other) for n in (1, 2)
    ]
    turned = compiled_pass(of_rows(32, ScalarOp("exp", (0,)), table=(64, 0, 32)), host).name
    assert len({*names, turned}) == 5
    assert compiled_pass(plain, host).name == names[0]
