"""K-streaming schedules as values: JSON, legality, what is refused and how."""

import pytest

from tests.kernels.mlir.air.build import SMALL, THREADS_OWN, matmul, streaming
from tilewise.kernels.errors import ScheduleError, UnsupportedError
from tilewise.kernels.mlir.air import KStreaming, emit_air, require_streamed
from tilewise.kernels.problem import parse_problem

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
