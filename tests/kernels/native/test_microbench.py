"""The loops that measure the two limits read memory and leave it as it is."""

import numpy as np
import pytest

from kernels.native.microbench import multiplier, reader
from kernels.target import detect


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
