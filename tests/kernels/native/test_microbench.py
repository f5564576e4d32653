"""The loops that measure the two limits read memory and leave it as it is."""

import time

import numpy as np
import pytest

from tilewise.kernels.native import microbench
from tilewise.kernels.native.microbench import multiplier, reader
from tilewise.kernels.target import detect


@pytest.mark.parametrize("streams", [1, 3])
def test_a_reader_changes_nothing(streams: int) -> None:
    target = detect()
    steps = 5
    lines = np.random.default_rng(streams).integers(
        0, 256, streams * steps * target.vector_bytes, dtype=np.uint8
    )
    before = lines.copy()
    reader(target, streams)(lines.ctypes.data, steps)
    assert (lines == before).all()


def test_multiply_adds_change_nothing_and_count_their_operations() -> None:
    target = detect()
    call, operations = multiplier(target, "f32")
    vector = np.ones(target.vector_bytes, np.uint8)
    call(vector.ctypes.data, 3)
    assert (vector == 1).all()
    assert operations % (2 * target.lanes("f32")) == 0


def test_rounds_go_on_until_the_fastest_ones_agree() -> None:
    """A busy machine disturbs most rounds, each by another amount."""
    delays = [*(0.004 + 0.0015 * (number % 5) for number in range(40)), *[0.001] * 40]
    left = iter(delays)

    def run(_address: int, _steps: int) -> None:
        end = time.thread_time() + next(left)
        while time.thread_time() < end:
            pass

    agreed = microbench._confirmed_least(run, (0, 0), 15)
    assert agreed <= 0.005 and len(list(left)) >= 25, "nine rounds of 4 ms agree"
    left = iter([0.03, 0.02, 0.015, 0.012, 0.010, 0.008, 0.006, 0.005, 0.001, 0.001, 0.001, 0.001])
    assert microbench._confirmed_least(run, (0, 0), 3) < 0.003


def test_time_that_other_processes_take_does_not_count() -> None:
    def waits(_address: int, _steps: int) -> None:
        time.sleep(0.05)

    assert microbench._timed(waits, 0, 0) < 0.04
