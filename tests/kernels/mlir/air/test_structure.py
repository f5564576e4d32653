"""The three wishes, read off the IR: what is copied, packed, filled where."""

from collections.abc import Callable
from math import prod

import pytest

from tests.kernels.mlir.air.build import ENDS, SMALL, THREADS_OWN, made, matmul, streaming
from tilewise.kernels.mlir.air import describe, emit_air, traffic
from tilewise.kernels.mlir.air.inspection import OperationPlace, check_wishes
from tilewise.kernels.mlir.transform.module import mlir_version

L3, L2, L1 = 0, 1, 2
CASES = [
    ("m=1024,n=512,k=2048,dtype=i32", THREADS_OWN),
    ("m=64,n=96,k=128,dtype=f32", SMALL),
    ("m=64,n=96,k=128,dtype=f64", (32, 48, 8, 48, 32, 8, 8, 6, 4)),
    ("m=64,n=64,k=128,dtype=i8", (64, 64, 64, 16, 64, 32, 2, 16, 16)),
    ("m=64,n=32,k=128,dtype=bf16", SMALL),
    ("m=32,n=64,k=128,dtype=f16", (32, 32, 16, 16, 64, 16, 16, 16, 16)),
    ("m=32,n=32,k=64,dtype=i32", (32, 32, 16, 16, 16, 8, 8, 8, 8)),  # tiles of one shape
    ("m=15,n=21,k=140,dtype=i32", (15, 21, 5, 7, 35, 7, 5, 1, 7)),
    ("m=1,n=64,k=128,dtype=f32", (1, 32, 1, 16, 64, 16, 1, 8, 8)),
    ("m=64,n=1,k=128,dtype=f32", (32, 1, 16, 1, 64, 16, 4, 1, 1)),
]


def those(found: tuple[OperationPlace, ...], name: str, *spaces: int) -> list[OperationPlace]:
    return [p for p in found if p.name.endswith(name) and p.spaces == spaces]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(("text", "sizes"), CASES)
def test_the_wishes(text: str, sizes: tuple[int, ...], end: str) -> None:
    problem, schedule = matmul(text), streaming(sizes, end)
    found = made(problem, schedule)
    kernel = next(p for p in found if p.name == "linalg.generic")
    assert kernel.spaces == (L1, L1, L1)
    blocks, threads, outer, inner = kernel.loops
    assert blocks.mapping == ("#gpu.block<y>", "#gpu.block<x>")
    assert threads.mapping == ("#gpu.thread<y>", "#gpu.thread<x>")
    assert blocks.trips == (problem.m // sizes[0], problem.n // sizes[1])
    assert threads.trips == schedule.threads
    assert (outer.trips, inner.trips) == ((problem.k // sizes[4],), (sizes[4] // sizes[5],))

    copies = those(found, "copy", L3, L2)
    assert [p.loops for p in copies] == [(blocks, threads, outer)] * 2  # a
    packs = those(found, "pack", L2, L1)
    assert [p.loops for p in packs] == [(blocks, threads, outer, inner)] * 2  # b
    assert [p for p in found if inner in p.loops] == [*packs, kernel]
    assert [p for p in found if outer in p.loops] == [*copies, *packs, kernel]

    (fill,) = those(found, "fill", L1)  # c
    (unpack,) = those(found, "unpack", L1, L2 if end == "l2" else L3)
    assert fill.loops == unpack.loops == (blocks, threads)
    assert fill.number < outer.number < kernel.number < unpack.number
    m, n, m0, n0 = *sizes[2:4], *sizes[6:8]
    assert fill.buffers[0].shape == (n // n0, m // m0, m0, n0) == unpack.buffers[0].shape
    out = those(found, "copy", L2, L3)
    assert len(found) == 7 + len(out)
    if end == "l2":
        assert [(p.loops, p.buffers[0].shape) for p in out] == [((blocks,), sizes[:2])]
    else:
        assert out == []


@pytest.mark.parametrize(("text", "moved"), [
    ("m=61,n=67,k=101,dtype=i32", [(61, 101), (101, 67), (61, 67)]),
    ("m=61,n=64,k=128,dtype=i32", [(61, 128), (61, 64)]),
    ("m=64,n=64,k=101,dtype=i32", [(64, 101), (101, 64)]),
])  # fmt: skip
def test_what_is_padded_is_padded_once_in_l3(text: str, moved: list[tuple[int, ...]]) -> None:
    problem, schedule = matmul(text), streaming(SMALL)
    found = made(problem, schedule)
    check_wishes(found, problem, schedule)
    pads = those(found, "copy", L3, L3)
    assert sorted(p.buffers[-1].shape for p in pads) == sorted(moved)
    assert not any(p.loops for p in pads)


@pytest.mark.parametrize(("text", "sizes"), CASES)
def test_bytes_are_those_that_the_model_counts(text: str, sizes: tuple[int, ...]) -> None:
    problem, schedule = matmul(text), streaming(sizes, "l2")
    found, t = made(problem, schedule), traffic(problem, schedule)

    def moved(moves: list[OperationPlace], size: int) -> tuple[int, int]:
        times = [prod(prod(loop.trips) for loop in p.loops) for p in moves]
        shapes = [prod(p.buffers[-1].shape) for p in moves]
        return sum(times), sum(n * s * size for n, s in zip(times, shapes, strict=True))

    element = problem.element
    assert moved(those(found, "copy", L3, L2), element.bytes) == (t.copies, t.l3_to_l2)
    assert moved(those(found, "pack", L2, L1), element.bytes) == (t.packs, t.l2_to_l1)
    unpacked = moved(those(found, "unpack", L1, L2), element.accumulator_bytes)[1]
    copied = moved(those(found, "copy", L2, L3), element.accumulator_bytes)[1]
    assert unpacked + copied == t.result


@pytest.mark.parametrize("end", ENDS)
def test_scripts_of_the_discussed_problem(golden: Callable[[str, str], None], end: str) -> None:
    problem = matmul("m=1024,n=512,k=2048,dtype=i32")
    schedule = streaming(THREADS_OWN, end)
    script = emit_air(problem, schedule, describe(problem, schedule))
    golden(f"to_{end}.mlir", script.replace(mlir_version(), "VERSION"))
