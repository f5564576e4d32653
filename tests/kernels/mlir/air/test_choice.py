"""What the model chooses fits what was declared, and moves no more than it has to."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases, some
from tests.kernels.mlir.air.build import ENDS, matmul
from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.mlir.air import Memories, check_streaming, choose, traffic
from tilewise.kernels.mlir.air.schedule import padded
from tilewise.kernels.problem import DTYPES

SIZES = st.integers(1, 300)


TYPES = sorted(DTYPES.keys() - {"u8"})  # which has no air script


@cases(60, short=20)
@given(SIZES, SIZES, SIZES, st.sampled_from(TYPES), st.sampled_from(ENDS))
def test_every_size_gets_a_legal_schedule_that_fits(
    m: int, n: int, k: int, dtype: str, end: str
) -> None:
    problem = matmul(f"m={m},n={n},k={k},dtype={dtype}")
    memories = Memories(l1_bytes=16 << 10, l2_bytes=64 << 10)
    plan = choose(problem, memories, end)
    check_streaming(problem, plan)
    t = traffic(problem, plan, memories.buffers)
    assert t.l1_bytes <= memories.l1_bytes
    assert t.l2_bytes <= memories.l2_bytes
    assert plan.threads[0] <= memories.rows and plan.threads[1] <= memories.cols


@pytest.mark.parametrize(
    ("end", "dtype", "sizes"),
    some(product(ENDS, TYPES, [(1024, 512, 2048), (64, 96, 64), (8, 1040, 40)]), of=5),
)
def test_multiples_of_eight_keep_all_cores_busy_on_whole_packs(
    sizes: tuple[int, int, int], dtype: str, end: str
) -> None:
    m, n, k = sizes
    plan = choose(matmul(f"m={m},n={n},k={k},dtype={dtype}"), result=end)
    assert plan.threads == (2, 2)
    assert (plan.pack_m, plan.pack_n, plan.pack_k) == (4, 8, 8)
    loops = (plan.outer_k < k) + (plan.inner_k < plan.outer_k)
    assert loops == (1 if k == 40 else 2)  # five packs deep is divided once


@pytest.mark.parametrize(("m", "n", "k"), [(1000, 999, 1001), (1009, 1013, 1019), (61, 67, 101)])
def test_odd_sizes_are_padded_by_little(m: int, n: int, k: int) -> None:
    problem = matmul(f"m={m},n={n},k={k},dtype=f32")
    plan = choose(problem)
    assert plan.threads == (2, 2)
    assert plan.pack_k == 8
    whole = padded(problem, plan)
    assert whole.flops <= problem.flops * 1.4
    assert (whole.m, whole.n, whole.k) >= (m, n, k)


def test_memories_that_are_too_small_are_refused() -> None:
    with pytest.raises(ScheduleError, match=r"L1 of 16 bytes .* declare more"):
        choose(matmul("m=4,n=4,k=4,dtype=f32"), Memories(l1_bytes=16))
