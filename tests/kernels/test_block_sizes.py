from hypothesis import given, settings
from hypothesis import strategies as st

from tilewise.kernels.block_sizes import balanced_depth, equal_block


@settings(deadline=None)
@given(st.integers(1, 5000), st.sampled_from([0, 64, 100, 512, 6000]))
def test_chunks_are_balanced(extent: int, wanted: int) -> None:
    chunk = balanced_depth(extent, wanted)
    chunks = -(-extent // chunk)
    assert chunk * chunks - extent < chunks
    assert 1 <= chunk <= extent


@settings(deadline=None)
@given(st.integers(1, 5000), st.sampled_from([0, 16, 200, 512]), st.integers(1, 80))
def test_blocks_are_equal_counted_in_panels(extent: int, wanted: int, unit: int) -> None:
    block = equal_block(extent, wanted, unit)
    assert block % unit == 0
    assert -(-extent // unit) % (block // unit) == 0
