"""A pass's ops as a module of their own, and what it computes exactly."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.kernels.dispatches.passes.row_pass import Reading, RowPass
from tilewise.kernels.dispatches.patterns.alone import function_of
from tilewise.kernels.dispatches.patterns.graph import Value
from tilewise.kernels.native.passes.rows.program import COMPARE, NUMBER, READ, REDUCTIONS, SELECT

Array = NDArray[Any]
NEGATED = "%negated"

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "negate": np.negative,
    "max": np.maximum,
    "maxnum": np.fmax,
    "min": np.minimum,
    "minnum": np.fmin,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "exp": np.exp,
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "multiply add": lambda x, y, z: x * y + z,
    "narrow": lambda x: x,
    "widen": lambda x: x,
}
_REDUCED: dict[str, Callable[..., Any]] = {
    "sum": np.sum, "max": np.max, "maxnum": np.fmax.reduce, "min": np.min,
    "minnum": np.fmin.reduce, "larger": np.max,
}  # fmt: skip
_COMPARED: tuple[Callable[[Array, Array], Array], ...] = (
    lambda x, y: np.zeros(np.broadcast_shapes(x.shape, y.shape), bool),
    np.equal, np.greater, np.greater_equal, np.less, np.less_equal,
    lambda x, y: (x < y) | (x > y),
    lambda x, y: ~(np.isnan(x) | np.isnan(y)),
    lambda x, y: ~((x < y) | (x > y)),
    lambda x, y: ~(x <= y), lambda x, y: ~(x < y), lambda x, y: ~(x >= y), lambda x, y: ~(x > y),
    np.not_equal,
    lambda x, y: np.isnan(x) | np.isnan(y),
    lambda x, y: np.ones(np.broadcast_shapes(x.shape, y.shape), bool),
)  # fmt: skip
"""By MLIR's numbers of predicates of floats."""


def module_of(one: RowPass) -> str:
    """A module whose function computes the pass of its operands, into its last argument."""
    return _module(one, None)


def module_over(one: RowPass) -> str:
    """As `module_of`, where the operand that a pass overwrites is the module's own.

    The function gets that operand negated, and gives the pass what it makes of it.
    """
    return _module(one, one.overwrites)


def _module(one: RowPass, own: int | None) -> str:
    pattern = one.pattern
    given = [
        (NEGATED if at == own else value.name, value.type)
        for at, value in enumerate(pattern.operands)
    ]
    return function_of(pattern, given, "" if own is None else _negation(pattern.operands[own]))


def _negation(value: Value) -> str:
    """What makes an operand of its negative, in memory of its own."""
    loops = ", ".join(f"d{i}" for i in range(len(value.shape or ())))
    each = f"affine_map<({loops}) -> ({loops})>"
    kinds = ", ".join('"parallel"' for _ in value.shape or ())
    return f"""  %own = tensor.empty() : {value.type}
  {value.name} = linalg.generic {{indexing_maps = [{each}, {each}], iterator_types = [{kinds}]}}
    ins({NEGATED} : {value.type}) outs(%own : {value.type}) {{
  ^bb0(%one: {value.element}, %before: {value.element}):
    %back = arith.negf %one : {value.element}
    linalg.yield %back : {value.element}
  }} -> {value.type}
"""


def expected(one: RowPass, operands: Sequence[Array]) -> Array:
    """What a pass computes, in f64, of operands as rows of any float type; rows by columns."""
    made: list[Array] = []
    for step in one.body:
        of = [made[i] for i in step.of]
        if step.name == READ:
            reading = one.readings[int(step.number)]
            made.append(_read(one, reading, operands[reading.operand]))
        elif step.name == NUMBER:
            made.append(np.array(step.number, np.float64))
        elif step.name in REDUCTIONS:
            wide = np.broadcast_to(of[0], (one.rows, one.columns))
            made.append(_REDUCED[REDUCTIONS[step.name]](wide, axis=1)[:, np.newaxis])
        elif step.name == COMPARE:
            made.append(_COMPARED[int(step.number)](*of))
        elif step.name == SELECT:
            made.append(np.where(*of))
        else:
            made.append(_FUNCTIONS[step.name](*of))
    shape = one.rows, one.columns if one.is_wide else 1
    return np.broadcast_to(made[one.result], shape)


def _read(one: RowPass, reading: Reading, operand: Array) -> Array:
    """An operand's elements for each row and column."""
    flat, source = operand.reshape(-1).astype(np.float64), reading.source
    step = source.row
    rows = np.array(reading.table) if step is None else np.arange(one.rows) * step
    return flat[rows[:, np.newaxis] + np.arange(one.columns if source.is_wide else 1)]
