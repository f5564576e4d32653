"""Passes over rows compute what NumPy does in f64, for rows of any length, and write no more."""

import functools
import math
from itertools import count
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from examples.models.graph import as_stored
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.jit.loading import Loaded
from tilewise.kernels.native.jit.object_code import ObjectCode
from tilewise.kernels.native.passes.passes import Chain
from tilewise.kernels.native.passes.rows.program import Operation, RowProgram, Source, WrittenTensor
from tilewise.kernels.native.programs.compile import pass_object
from tilewise.kernels.oracle.operands import poison, to_bf16
from tilewise.kernels.target import detect

Array = NDArray[Any]
RNG = np.random.default_rng(11)
LENGTHS = [1, 7, 16, 50, 128, 131, 219]
READ = Operation("read", (), 0)
NUMBERS = count()


def run(
    program: RowProgram, rows: tuple[int, int], sources: list[Any], targets: list[Array]
) -> None:
    """One call; a source is an array, or one with its table."""
    words = [0, 0, *rows]
    for one in sources:
        array, table = one if isinstance(one, tuple) else (one, None)
        words += [array.ctypes.data, 0 if table is None else table.ctypes.data]
    words += [one.ctypes.data for one in targets]
    row = np.array(words, np.int64)
    function = loaded(program)
    Chain(function.addresses[0])(row.ctypes.data)


@functools.cache
def loaded(program: RowProgram) -> Loaded:
    name = f"tilewise_rows{next(NUMBERS)}"
    return Loaded(ObjectCode((name,), pass_object(program, name, detect())[0]))


def guarded(*shape: int, kind: type[Any] = np.float32) -> Array:
    array = np.empty(shape, kind)
    poison(array)
    return array


def values(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def wide(columns: int) -> Source:
    return Source("f32", True, columns)


@pytest.mark.parametrize("columns", LENGTHS)
def test_a_layer_norm_with_a_residual(columns: int) -> None:
    names = [("add", (0, 1)), ("row sum", (4,)), ("number", (), columns), ("divide", (5, 6)),
             ("subtract", (4, 7)), ("multiply", (8, 8)), ("row sum", (9,)), ("divide", (10, 6)),
             ("number", (), 1e-5), ("add", (11, 12)), ("rsqrt", (13,)), ("multiply", (8, 14)),
             ("multiply", (15, 2)), ("add", (16, 3))]  # fmt: skip
    reads = [Operation("read", (), i) for i in range(4)]
    operations = (*reads, *(Operation(*one) for one in names))
    whole, one_row = wide(columns), Source("f32", True, 0)
    program = RowProgram(
        columns, (whole, whole, one_row, one_row), operations,
        (WrittenTensor("f32", 17, True), WrittenTensor("f32", 7, False)),
    )  # fmt: skip
    x, y, scale, shift = values(9, columns), values(9, columns), values(columns), values(columns)
    made, means = guarded(9, columns), guarded(9)
    for rows in ((0, 0), (0, 3), (3, 8)):
        run(program, rows, [x, y, scale, shift], [made, means])
    total = x.astype(float) + y
    centred = total - total.mean(1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(made[:8], (normal * scale + shift)[:8], rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(means[:8], total.mean(1)[:8], rtol=1e-5, atol=1e-6)
    assert {*made[8].view(np.uint32), *means[8:].view(np.uint32)} == {0xC5C5C5C5}


def test_a_zero_keeps_its_sign() -> None:
    def program(zero: float) -> RowProgram:
        operations = (READ, Operation("number", (), zero), Operation("divide", (0, 1)))
        return RowProgram(5, (wide(5),), operations, (WrittenTensor("f32", 2, True),))

    above, below = guarded(1, 5), guarded(1, 5)
    assert program(0.0) != program(-0.0)
    run(program(0.0), (0, 1), [np.ones((1, 5), np.float32)], [above])
    run(program(-0.0), (0, 1), [np.ones((1, 5), np.float32)], [below])
    assert (above == np.inf).all()
    assert (below == -np.inf).all()


@pytest.mark.parametrize("columns", LENGTHS)
def test_a_softmax_keeps_what_is_no_number(columns: int) -> None:
    names = [("number", (), 0.125), ("multiply", (0, 1)), ("row max", (2,)), ("subtract", (2, 3)),
             ("exp", (4,)), ("row sum", (5,)), ("divide", (5, 6))]  # fmt: skip
    operations = (READ, *(Operation(*one) for one in names))
    program = RowProgram(columns, (wide(columns),), operations, (WrittenTensor("f32", 7, True),))
    x, made = 100 * values(6, columns), guarded(6, columns)
    x[1, columns // 2], x[2], x[3, 0] = np.nan, -np.inf, np.inf
    if columns > 1:
        x[4, 0] = -np.inf
    run(program, (0, 6), [x], [made])
    with np.errstate(invalid="ignore"):
        scaled = x.astype(float) / 8
        powers = np.exp(scaled - scaled.max(1, keepdims=True))
        expected = powers / powers.sum(1, keepdims=True)
    assert [np.isnan(row).any() for row in made] == [False, True, True, True, False, False]
    np.testing.assert_allclose(made, expected, rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "function", "units"),
    [("exp", math.exp, 2), ("erf", math.erf, 5), ("tanh", math.tanh, 3)],
)
def test_functions_are_within_units_in_the_last_place(name: str, function: Any, units: int) -> None:
    spreads = np.array([1e-3, 0.1, 1, 4, 60], np.float32)
    x = np.concatenate([spread * values(3000) for spread in spreads])
    x = np.clip(x, -86, 86).astype(np.float32)
    made = guarded(x.size)
    program = RowProgram(
        x.size, (wide(0),), (READ, Operation(name, (0,))), (WrittenTensor("f32", 1, True),)
    )
    run(program, (0, 1), [x], [made])
    expected = np.array([function(float(one)) for one in x])
    off = np.abs(made - expected) / np.spacing(np.abs(expected).astype(np.float32))
    assert off.max() < units
    ends = np.array([np.inf, -np.inf, np.nan, 1e4, -1e4, 0, -0.0, -100], np.float32)
    found, few = guarded(8), RowProgram(8, (wide(0),), (READ, Operation(name, (0,))),
                                        (WrittenTensor("f32", 1, True),))  # fmt: skip
    run(few, (0, 1), [ends], [found])
    least, zero = (0.0, 1.0) if name == "exp" else (-1.0, 0.0)
    most = np.inf if name == "exp" else 1.0
    np.testing.assert_allclose(found[:7], [most, least, np.nan, most, least, zero, zero], rtol=1e-6)
    assert found[7] == (np.float32(math.exp(-100)) if name == "exp" else -1)


def test_operations_of_elements() -> None:
    x, y = values(4, 37), values(4, 37)
    x[0, :3], y[0, 2:5] = np.nan, np.nan
    both = [(Operation("read", (), i)) for i in range(2)]
    less, larger = 4, 2  # MLIR's numbers of ordered comparisons
    cases: list[tuple[list[Operation], Any]] = [
        ([Operation("subtract", (0, 1))], x - y),
        ([Operation("max", (0, 1))], np.maximum(x, y)),
        ([Operation("min", (0, 1))], np.minimum(x, y)),
        ([Operation("maxnum", (0, 1))], np.fmax(x, y)),
        ([Operation("minnum", (0, 1))], np.fmin(x, y)),
        ([Operation("negate", (0,))], -x),
        ([Operation("abs", (0,)), Operation("sqrt", (2,))], np.sqrt(np.abs(x))),
        ([Operation("multiply add", (0, 1, 1))], x.astype(float) * y + y),
        ([Operation("number", (), 0.5), Operation("max", (0, 2))], np.maximum(x, np.float32(0.5))),
        ([Operation("compare", (0, 1), less), Operation("select", (2, 1, 0))],
         np.where(x < y, y, x)),
        ([Operation("compare", (0, 1), larger), Operation("select", (2, 0, 1))],
         np.where(x > y, x, y)),
        ([Operation("narrow", (0,)), Operation("widen", (2,))], as_stored(x, "bf16")),
    ]  # fmt: skip
    for more, expected in cases:
        operations = (*both, *more)
        target = WrittenTensor("f32", len(operations) - 1, True)
        made = guarded(4, 37)
        run(RowProgram(37, (wide(37), wide(37)), operations, (target,)), (0, 4), [x, y], [made])
        np.testing.assert_allclose(made, expected, rtol=1e-7, err_msg=str(more))


@pytest.mark.parametrize("name", ["sum", "max", "maxnum", "min", "minnum"])
def test_reductions(name: str) -> None:
    x = values(5, 77)
    x[2, 9] = np.nan
    operations = (READ, Operation(f"row {name}", (0,)), Operation("subtract", (0, 1)))
    program = RowProgram(77, (wide(77),), operations, (
        WrittenTensor("f32", 1, False), WrittenTensor("f32", 1, True),
        WrittenTensor("f32", 2, True)))  # fmt: skip
    ones, same, rest = guarded(5), guarded(5, 77), guarded(5, 77)
    run(program, (0, 5), [x], [ones, same, rest])
    plain = {"sum": np.sum, "max": np.max, "maxnum": np.fmax.reduce, "min": np.min,
             "minnum": np.fmin.reduce}[name]  # fmt: skip
    expected = plain(x, axis=1)
    np.testing.assert_allclose(ones, expected, rtol=1e-5, atol=1e-5)
    assert np.array_equal(same, np.repeat(ones[:, None], 77, 1), equal_nan=True)
    assert np.array_equal(rest, x - ones[:, None], equal_nan=True)


def test_rows_by_a_table_and_casts_of_bf16() -> None:
    x, bias = as_stored(values(6, 40), "bf16"), values(6)
    order = np.array([3, 0, 5, 1], np.int64)
    operations = (
        READ,
        Operation("read", (), 1),
        Operation("add", (0, 1)),
        Operation("narrow", (2,)),
    )
    sources = Source("bf16", True, None), Source("f32", False, None)
    program = RowProgram(21, sources, operations, (WrittenTensor("bf16", 3, True),))
    made = guarded(5, 21, kind=np.uint16)
    run(program, (0, 4), [(to_bf16(x), 40 * order + 2), (bias, order)], [made])
    expected = as_stored(x[order, 2:23] + bias[order, None], "bf16")
    assert np.array_equal(made[:4], to_bf16(expected))
    assert set(made[4].view(np.uint8)) == {0xC5}


def test_ties_round_to_even() -> None:
    bits = np.array([[0x3F808000, 0x3F818000, 0xBF808000, 0x3F808001]], np.uint32)
    operations = (READ, Operation("narrow", (0,)))
    program = RowProgram(4, (wide(4),), operations, (WrittenTensor("bf16", 1, True),))
    made = guarded(1, 4, kind=np.uint16)
    run(program, (0, 1), [bits.view(np.float32)], [made])
    assert made.tolist() == [[0x3F80, 0x3F82, 0xBF80, 0x3F81]]


def test_programs_at_random() -> None:
    random = Random(3)
    for _ in range(12):
        columns = random.choice([3, 33, 140, 300])
        check_random(random, columns)


def check_random(random: Random, columns: int) -> None:
    """Sums, products and reductions in any order, all of them written."""
    x = values(3, columns)
    operations, expected = [READ], [x.astype(float)]
    for _ in range(random.randint(1, 9)):
        if random.random() < 0.4:
            of = random.randrange(len(operations))
            name = random.choice(["sum", "max", "min"])
            if expected[of].shape[1] != columns:
                continue
            operations.append(Operation(f"row {name}", (of,)))
            expected.append(getattr(np, name)(expected[of], axis=1, keepdims=True) / 1)
        else:
            a, b = (random.randrange(len(operations)) for _ in "ab")
            name = random.choice(["add", "subtract"])
            operations.append(Operation(name, (a, b)))
            expected.append(getattr(np, name)(expected[a], expected[b]))
    are_wide = [one.shape[1] == columns for one in expected]
    targets = tuple(WrittenTensor("f32", i, is_wide) for i, is_wide in enumerate(are_wide))
    made = [guarded(*one.shape) for one in expected]
    run(RowProgram(columns, (wide(columns),), tuple(operations), targets), (0, 3), [x], made)
    for number, (found, right) in enumerate(zip(made, expected, strict=True)):
        size = np.abs(right).max() + columns
        np.testing.assert_allclose(found, right, atol=1e-5 * size, err_msg=str(operations[number]))


def test_a_choice_by_no_comparison_is_refused() -> None:
    operations = (READ, Operation("select", (0, 0, 0)))
    with pytest.raises(LoweringError, match="something else than a comparison"):
        loaded(RowProgram(8, (wide(8),), operations, (WrittenTensor("f32", 1, True),)))
