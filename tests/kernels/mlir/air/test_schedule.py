"""K-streaming schedules as values: JSON, legality, what is refused and how."""

from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases, some
from tests.kernels.mlir.air.build import ENDS, SMALL, THREADS_OWN, matmul, streaming
from tilewise.kernels.errors import ScheduleError, UnsupportedError
from tilewise.kernels.mlir.air import (
    KStreaming,
    Memories,
    check_streaming,
    choose,
    describe,
    emit_air,
    require_streamed,
    traffic,
)
from tilewise.kernels.mlir.transform.module import mlir_version
from tilewise.kernels.problem import DTYPES, parse_problem

PROBLEM = matmul("m=64,n=64,k=128,dtype=i32")


def test_json_round_trip_and_recipe() -> None:
    plan = streaming(THREADS_OWN, "l2")
    assert KStreaming.from_json(plan.to_json()) == plan
    assert str(plan).splitlines() == [
        "tile   m=64 n=64 on block",
        "tile   m=32 n=32 on thread",
        "pack   A 4x8, B 8x8, C 4x8, outer and inner permutation",
        "stream k=256 to L2 (copies of A and B)",
        "stream k=32 to L1 (packs of A and B)",
        "init   fill in L1, packed; result L1 to L2 64x64 to L3",
    ]


@pytest.mark.parametrize(
    ("index", "size", "says"),
    [
        (0, 40, "thread_m=16 does not divide block_m=40.*such as 10"),
        (3, 12, "thread_n=12 does not divide block_n=32.*such as 8"),
        (4, 72, "inner_k=16 does not divide outer_k=72.*such as 12"),
        (5, 24, "inner_k=24 does not divide outer_k=64.*such as 16"),
        (6, 3, "pack_m=3 does not divide thread_m=16.*such as 2"),
        (8, 32, "pack_k=32 does not divide inner_k=16.*such as 16"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(index: int, size: int, says: str) -> None:
    sizes = (*SMALL[:index], size, *SMALL[index + 1 :])
    with pytest.raises(ScheduleError, match=says):
        emit_air(PROBLEM, streaming(sizes))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"outer_k": 0}, "outer_k=0: give a whole number"),
        ({"outer_k": True}, "outer_k=True"),
        ({"pack_m": "4"}, "pack_m='4'"),
        ({"result": "l1"}, "result='l1' is not one of l3, l2"),
        ({"depth": 4}, "depth is unknown"),
    ],
)
def test_bad_json_names_the_field(change: dict[str, object], says: str) -> None:
    with pytest.raises(ScheduleError, match=says):
        KStreaming.from_json({**streaming(SMALL).to_json(), **change})
    with pytest.raises(ScheduleError, match="block_m is missing"):
        KStreaming.from_json(
            {k: v for k, v in streaming(SMALL).to_json().items() if k != "block_m"}
        )
    with pytest.raises(ScheduleError, match="is an object"):
        KStreaming.from_json([1])


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("conv2d:n=1,h=4,w=4,ci=4,co=4,kh=1,kw=1,dtype=f32", "op"),
        ("matmul:batch=2,m=4,n=4,k=4,dtype=f32", "batch"),
        ("matmul:m=4,n=4,k=4,dtype=f32,transpose_a", "transpose_a"),
        ("matmul:m=4,n=4,k=4,dtype=f32,transpose_b", "transpose_b"),
        ("matmul:m=4,n=4,k=4,dtype=f32,init=accumulate", "init"),
        ("matmul:m=4,n=4,k=4,dtype=f32,bias", "bias"),
        ("matmul:m=4,n=4,k=4,dtype=f32,epilogue=relu", "epilogue"),
        ("matmul:m=4,n=4,k=4,dtype=f32,weights=constant", "weights"),
    ],
)
def test_other_problems_are_refused_by_name(text: str, field: str) -> None:
    with pytest.raises(UnsupportedError, match="air script") as caught:
        require_streamed(parse_problem(text))
    assert caught.value.field == field


@pytest.mark.parametrize("end", ENDS)
def test_scripts_of_the_discussed_problem(golden: Callable[[str, str], None], end: str) -> None:
    problem = matmul("m=1024,n=512,k=2048,dtype=i32")
    schedule = streaming(THREADS_OWN, end)
    script = emit_air(problem, schedule, describe(problem, schedule))
    golden(f"to_{end}.mlir", script.replace(mlir_version(), "VERSION"))


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


def test_memories_that_are_too_small_are_refused() -> None:
    with pytest.raises(ScheduleError, match=r"L1 of 16 bytes .* declare more"):
        choose(matmul("m=4,n=4,k=4,dtype=f32"), Memories(l1_bytes=16))
