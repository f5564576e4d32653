"""How results are compared, and how calls are timed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewise.kernels.mlir.lowering.apply import StageError
from tilewise.kernels.mlir.lowering.jit import RepeatedCall, compile_ir
from tilewise.kernels.mlir.proof.child.comparison import (
    FEWEST_UNITS,
    MARGIN,
    NEIGHBOURS,
    difference,
)
from tilewise.kernels.mlir.proof.child.timing import time_in_turn
from tilewise.kernels.oracle.operands import Array, to_bf16

NAN, INF = np.nan, np.inf


def floats(*values: float) -> Array:
    return np.array(values, np.float32)


UNITS = FEWEST_UNITS * 1024 * 2.0**-23
STEPS = floats(1e6, 1, 1, 1), [floats(1e6 + 1, 1 + 1e-6, 1 + 1e-6, 1 + 1e-6)]
FURTHEST = floats(100, 100), [floats(100, 100.5), floats(100, 98), floats(102, 101)]
STOOD_STILL = floats(1024, 1), [floats(1024, 1.0000001)]  # by chance
CASES = [
    # found, expected, moved; where it is wrong
    (floats(1, -2, 0), floats(1, -2, 0), [], None),
    # What no perturbation moves has to be equal.
    (floats(1, 2, 3.0000002), floats(1, 2, 3), [floats(1, 2, 3)] * 2, 2),
    # Each element has an allowance of its own, a multiple of its furthest move.
    (STEPS[0] + floats(0.5, 0, 0, 0), *STEPS, None),
    (STEPS[0] + floats(0, 0, 0.5, 0), *STEPS, 2),
    (floats(100, 100 + 2 * MARGIN + 0.5), *FURTHEST, 1),
    (floats(100, 100 + 2 * MARGIN - 0.5), *FURTHEST, None),
    # One that stood still may be off by some units in its last place.
    (floats(1024 + UNITS, 1), *STOOD_STILL, None),
    (floats(1024 + 2 * UNITS, 1), *STOOD_STILL, 0),
    (np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), [np.zeros((0, 3))], None),
]


@pytest.mark.parametrize(("given", "expected", "moved", "place"), CASES)
def test_results_may_be_off_by_what_perturbations_move(given, expected, moved, place) -> None:
    found = difference(given, expected, moved, "f32")
    assert found.is_wrong == (place is not None)
    if place is not None:
        assert found.place == (place,)
        assert found.error == np.abs(given - expected)[place] > found.allowed


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_what_is_no_number_is_right_where_the_payload_has_it(value: float) -> None:
    expected = floats(1, value, 2)
    found = difference(expected.copy(), expected, [floats(1.1, value, 2)], "f32")
    assert not found.is_wrong
    assert np.isfinite([found.error, found.allowed]).all()


@pytest.mark.parametrize(
    ("found", "expected"),
    [(NAN, 1.0), (1.0, NAN), (INF, 1.0), (1.0, INF), (INF, -INF), (-INF, INF), (INF, NAN),
     (NAN, INF), (NAN, 0.0)],
)  # fmt: skip
@pytest.mark.parametrize("moves", [[], [NAN], [INF], [1e30]])
def test_what_is_no_number_anywhere_else_is_wrong(found, expected, moves) -> None:
    moved = [floats(1, move, 3) for move in moves]
    compared = difference(floats(1, found, 2), floats(1, expected, 2), moved, "f32")
    assert compared.is_wrong and compared.place == (1,)
    assert np.isinf(compared.error) and np.isfinite(compared.allowed)


def test_the_largest_doubles_do_not_make_the_allowance_infinite() -> None:
    expected = np.array([1e308, 1.0])
    moved = [np.array([-1e308, NAN]), np.array([1.7e308, 1.0])]
    found = difference(np.array([-1e308, 1.0]), expected, moved, "f64")
    assert found.is_wrong and np.isfinite(found.allowed)


@pytest.mark.parametrize(("dtype", "element", "value", "off"), [
    (np.int8, "i8", 127, -255), (np.int16, "i16", 9, 1), (np.int32, "i32", 9_000_000, 3),
    (np.int64, "i64", 2**53, 1), (np.int64, "i64", 2**63 - 1, -(2**64 - 1)),
])  # fmt: skip
def test_integers_are_exact(dtype: Any, element: str, value: int, off: int) -> None:
    expected = np.array([[0, value], [value, 1]], dtype)
    moved = [expected.copy()]
    assert not difference(expected.copy(), expected, moved, element).is_wrong
    wrong = expected.copy()
    wrong[1, 0] = value + off
    found = difference(wrong, expected, moved, element)
    assert (found.error, found.allowed, found.place) == (float(abs(off)), 0, (1, 0))
    assert (found.found, found.expected) == (value + off, value)


def test_the_words_of_bf16_are_compared_as_numbers() -> None:
    one, two = to_bf16(floats(1, 2)), to_bf16(floats(1, 2.5))
    found = difference(two, one, [], "bf16")
    assert (found.error, found.place, found.found) == (0.5, (1,), 2.5)


def test_the_worst_of_many_elements_is_found() -> None:
    expected = np.ones((3, NEIGHBOURS), np.float32)
    moved = [expected + np.float32(1e-6)]
    wrong = expected.copy()
    wrong[0, 7], wrong[2, NEIGHBOURS - 1] = 1.001, 1.002
    assert difference(wrong, expected, moved, "f32").place == (2, NEIGHBOURS - 1)
    wrong[2, NEIGHBOURS - 1] = 1
    assert difference(wrong, expected, moved, "f32").place == (0, 7)


def test_integers_may_be_off_where_the_payloads_roundings_move_them() -> None:
    expected = np.array([9, 9, 9, 9], np.int8)
    moved = [np.array([10, 9, 9, 9], np.int8)]
    assert not difference(moved[0], expected, moved, "i8").is_wrong
    found = difference(np.array([9, 10, 9, 9], np.int8), expected, moved, "i8")
    assert found.is_wrong and found.is_inexact and found.place == (1,)


def test_calls_are_timed_in_turns_and_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    now, order = [0.0], list[str]()
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    def taking(name: str, seconds: float) -> Callable[[int], object]:
        def call(repeats: int) -> None:
            cold = 1.0 if name not in order else 0.0
            now[0] += cold + seconds * repeats
            order.append(name)

        return call

    found = time_in_turn([taking("a", 2.0**-10), taking("b", 2.0**-9)], seconds=0.5)
    assert found == [2.0**-10, 2.0**-9]
    assert order[:6] == ["a", "b"] * 3


def test_many_calls_are_one_entry() -> None:
    text = """
        define i64 @count(ptr %0, ptr %1, i64 %2, i64 %3, i64 %4) {
          %6 = load i64, ptr %1, align 8
          %7 = add i64 %6, 1
          store i64 %7, ptr %1, align 8
          ret i64 %7
        }
    """
    cell = np.zeros(1, np.int64)
    call = RepeatedCall(compile_ir(text, "count"), [cell])
    call()
    call(41)
    assert cell[0] == 42
    with pytest.raises(ValueError, match="returns nothing"):
        call.returned()


def test_a_function_that_is_not_there_is_a_failure_to_compile() -> None:
    with pytest.raises(StageError, match="no_such") as caught:
        compile_ir("define void @f() { ret void }", "no_such")
    assert caught.value.failure == "compile"
