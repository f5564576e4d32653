"""The median, and the order statistics around it."""

from collections.abc import Callable

import numpy as np
import pytest

from tilewise.kernels.mlir.lowering.apply import StageError
from tilewise.kernels.mlir.lowering.jit import RepeatedCall, compile_ir
from tilewise.kernels.mlir.proof.child.timing import summarise, time_beside, time_call


def test_interval_encloses_the_median() -> None:
    timing = summarise([float(i) for i in range(101)])
    assert timing.median == 50.0
    # of 101 fair coins, 40 to 60 heads are 95% likely
    assert (timing.low, timing.high) == (40.0, 60.0)


def test_calls_are_warmed_up_and_repeated() -> None:
    calls: list[None] = []
    time_call(lambda: calls.append(None), seconds=0.0)
    assert len(calls) == 6


def test_calls_are_timed_in_turns_and_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    now, order = [0.0], list[str]()
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    def taking(name: str, seconds: float) -> Callable[[int], object]:
        def call(repeats: int) -> None:
            cold = 1.0 if name not in order else 0.0
            now[0] += cold + seconds * repeats
            order.append(name)

        return call

    found = time_beside([taking("a", 2.0**-10), taking("b", 2.0**-9)], seconds=0.5)
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
