"""What the model chooses fits what was declared, and moves no more than it has to."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases, some
from tests.kernels.mlir.air.build import ENDS, matmul
from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.mlir.air import Memories, check_streaming, choose, describe, traffic
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


def test_more_memory_moves_fewer_bytes() -> None:
    problem = matmul("m=1024,n=1024,k=1024,dtype=f32")
    moved = []
    for kib in (8, 32, 128):
        memories = Memories(l1_bytes=kib << 10, l2_bytes=16 * kib << 10)
        moved.append(traffic(problem, choose(problem, memories)).l3_to_l2)
    assert moved == sorted(moved, reverse=True)
    assert len(set(moved)) == 3


def test_bytes_are_exact() -> None:
    problem = matmul("m=64,n=64,k=64,dtype=f32")
    t = traffic(problem, choose(problem))
    tiles, tile = 4, 32
    assert t.l3_to_l2 == t.l2_to_l1 == tiles * 2 * tile * 64 * 4
    assert t.result == 64 * 64 * 4


def test_memories_that_are_too_small_are_refused() -> None:
    with pytest.raises(ScheduleError, match=r"L1 of 16 bytes .* declare more"):
        choose(matmul("m=4,n=4,k=4,dtype=f32"), Memories(l1_bytes=16))


def test_the_model_says_that_nothing_was_measured() -> None:
    problem = matmul("m=64,n=64,k=64,dtype=f32")
    told = describe(problem, choose(problem))
    assert "modelled, not measured" in told[0]
    assert "L1 of 65536 bytes" in told[0]
