"""K-streaming schedules: legality and choice; their scripts prove, and wrong ones are found out."""

import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases, some
from tests.kernels.mlir.air.build import ENDS, SMALL, THREADS_OWN, matmul, streaming
from tilewise.kernels.errors import ScheduleError, UnsupportedError
from tilewise.kernels.mlir import air
from tilewise.kernels.mlir.air.prove import runnable
from tilewise.kernels.mlir.proof.proof import ScriptProof
from tilewise.kernels.problem import DTYPES, Matmul, parse_problem

PROBLEM = matmul("m=64,n=64,k=128,dtype=i32")


def test_json_round_trip_and_recipe() -> None:
    plan = streaming(THREADS_OWN, "l2")
    assert air.KStreaming.from_json(plan.to_json()) == plan
    assert str(plan).splitlines() == [
        "tile   m=64 n=64 on block",
        "tile   m=32 n=32 on thread",
        "pack   A 4x8, B 8x8, C 4x8, outer and inner permutation",
        "stream k=256 to L2 (copies of A and B)",
        "stream k=32 to L1 (packs of A and B)",
        "init   fill in L1, packed; result L1 to L2 64x64 to L3",
    ]


@pytest.mark.parametrize(("index", "size", "says"), [
    (0, 40, "thread_m=16 does not divide block_m=40.*such as 10"),
    (3, 12, "thread_n=12 does not divide block_n=32.*such as 8"),
    (4, 72, "inner_k=16 does not divide outer_k=72.*such as 12"),
    (5, 24, "inner_k=24 does not divide outer_k=64.*such as 16"),
    (6, 3, "pack_m=3 does not divide thread_m=16.*such as 2"),
    (8, 32, "pack_k=32 does not divide inner_k=16.*such as 16"),
])  # fmt: skip
def test_sizes_that_do_not_divide_are_refused(index: int, size: int, says: str) -> None:
    sizes = (*SMALL[:index], size, *SMALL[index + 1 :])
    with pytest.raises(ScheduleError, match=says):
        air.emit_air(PROBLEM, streaming(sizes))


@pytest.mark.parametrize(("change", "says"), [
    ({"outer_k": 0}, "outer_k=0: give a whole number"), ({"outer_k": True}, "outer_k=True"),
    ({"pack_m": "4"}, "pack_m='4'"), ({"result": "l1"}, "result='l1' is not one of l3, l2"),
    ({"depth": 4}, "depth is unknown"),
])  # fmt: skip
def test_bad_json_names_the_field(change: dict[str, object], says: str) -> None:
    with pytest.raises(ScheduleError, match=says):
        air.KStreaming.from_json({**streaming(SMALL).to_json(), **change})
    with pytest.raises(ScheduleError, match="block_m is missing"):
        air.KStreaming.from_json(
            {k: v for k, v in streaming(SMALL).to_json().items() if k != "block_m"}
        )
    with pytest.raises(ScheduleError, match="is an object"):
        air.KStreaming.from_json([1])


@pytest.mark.parametrize(("text", "field"), [
    ("conv2d:n=1,h=4,w=4,ci=4,co=4,kh=1,kw=1,dtype=f32", "op"),
    ("matmul:batch=2,m=4,n=4,k=4,dtype=f32", "batch"),
    ("matmul:m=4,n=4,k=4,dtype=f32,transpose_a", "transpose_a"),
    ("matmul:m=4,n=4,k=4,dtype=f32,transpose_b", "transpose_b"),
    ("matmul:m=4,n=4,k=4,dtype=f32,init=accumulate", "init"),
    ("matmul:m=4,n=4,k=4,dtype=f32,bias", "bias"),
    ("matmul:m=4,n=4,k=4,dtype=f32,epilogue=relu", "epilogue"),
    ("matmul:m=4,n=4,k=4,dtype=f32,weights=constant", "weights"),
])  # fmt: skip
def test_other_problems_are_refused_by_name(text: str, field: str) -> None:
    with pytest.raises(UnsupportedError, match="air script") as caught:
        air.require_streamed(parse_problem(text))
    assert caught.value.field == field


SIZES = st.integers(1, 300)


TYPES = sorted(DTYPES.keys() - {"u8"})  # which has no air script


@cases(60, short=20)
@given(SIZES, SIZES, SIZES, st.sampled_from(TYPES), st.sampled_from(ENDS))
def test_every_size_gets_a_legal_schedule_that_fits(m, n, k, dtype, end) -> None:
    problem = matmul(f"m={m},n={n},k={k},dtype={dtype}")
    memories = air.Memories(l1_bytes=16 << 10, l2_bytes=64 << 10)
    plan = air.choose(problem, memories, end)
    air.check_streaming(problem, plan)
    t = air.traffic(problem, plan, memories.buffers)
    assert t.l1_bytes <= memories.l1_bytes
    assert t.l2_bytes <= memories.l2_bytes
    assert plan.threads[0] <= memories.rows and plan.threads[1] <= memories.cols


@pytest.mark.parametrize(
    ("end", "dtype", "sizes"),
    some(product(ENDS, TYPES, [(1024, 512, 2048), (64, 96, 64), (8, 1040, 40)]), of=5),
)
def test_multiples_of_eight_keep_all_cores_busy_on_whole_packs(sizes, dtype, end) -> None:
    m, n, k = sizes
    plan = air.choose(matmul(f"m={m},n={n},k={k},dtype={dtype}"), result=end)
    assert plan.threads == (2, 2)
    assert (plan.pack_m, plan.pack_n, plan.pack_k) == (4, 8, 8)
    loops = (plan.outer_k < k) + (plan.inner_k < plan.outer_k)
    assert loops == (1 if k == 40 else 2)  # five packs deep is divided once


def test_memories_that_are_too_small_are_refused() -> None:
    with pytest.raises(ScheduleError, match=r"L1 of 16 bytes .* declare more"):
        air.choose(matmul("m=4,n=4,k=4,dtype=f32"), air.Memories(l1_bytes=16))


PLAN = streaming(SMALL)
RESULT = "affine_map<(m, n, k, i, j, l) -> (n, m, i, j)>"


def proven(problem: Matmul, schedule: air.KStreaming) -> ScriptProof:
    return air.prove_air(problem, schedule, air.emit_air(problem, schedule))


@pytest.mark.full
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(("text", "sizes"), [
    ("m=1024,n=512,k=2048,dtype=i32", THREADS_OWN),
    ("m=32,n=32,k=64,dtype=i32", (32, 32, 16, 16, 16, 8, 8, 8, 8)),
    ("m=15,n=21,k=140,dtype=i32", (15, 21, 5, 7, 35, 7, 5, 1, 7)),
    ("m=1,n=1,k=1,dtype=i32", (1,) * 9), ("m=61,n=67,k=101,dtype=i32", SMALL),
    ("m=64,n=64,k=101,dtype=i8", SMALL), ("m=64,n=61,k=128,dtype=f32", SMALL),
    ("m=3,n=64,k=128,dtype=bf16", SMALL),
    *((f"m=64,n=64,k=128,dtype={dtype}", SMALL) for dtype in ("i8", "f32", "f64", "f16", "bf16")),
])  # fmt: skip
def test_every_dtype_is_executed(text: str, sizes: tuple[int, ...], end: str) -> None:
    problem = matmul(text)
    proof = proven(problem, streaming(sizes, end))
    assert proof.ok, proof.message
    if not problem.element.is_float:
        assert (proof.max_error, proof.tolerance) == (0.0, 0.0)


@pytest.mark.parametrize("end", ENDS)
def test_what_the_model_chooses_proves_and_says_so(end: str) -> None:
    made = air.script_for(matmul("m=96,n=120,k=200,dtype=i8"), result=end)
    header = made.text.partition("module")[0]
    assert made.proof.ok and made.proof.script == made.text
    assert "chosen:   modelled, not measured" in header
    assert "proven:   structure inspected; executed on a processor, exact" in header
    for step in made.schedule.steps:
        assert f"    // {step}\n" in made.text


def test_a_large_problem_is_inspected_whole_and_executed_in_part() -> None:
    large = matmul("m=8192,n=8191,k=8193,dtype=f32")
    plan = streaming(THREADS_OWN)
    small = runnable(large, plan)
    assert (small.m, small.n, small.k) == (128, 127, 511)
    body = [air.emit_air(p, plan).partition("module")[2] for p in (large, small)]
    assert body[0] == body[1]
    made = air.script_for(large, air.Memories(l1_bytes=32 << 10))
    assert "executed on a processor on matmul:m=" in made.text


def dropping(line: str) -> str:
    script = air.emit_air(PROBLEM, PLAN)
    assert script.count(line) == 1
    return "\n".join(text for text in script.splitlines() if line not in text)


def replacing(old: str, new: str) -> str:
    script = air.emit_air(PROBLEM, PLAN)
    assert old in script
    return script.replace(old, new, 1)


@pytest.mark.parametrize(("script", "says"), [
    (dropping("fuse_into_containing_op %copy_b").replace("allocation %outer_copy_b",
                                                         "allocation %copy_b"), "a) two"),
    (dropping("%buffer_l2_a"), "a) two"),
    (dropping("%thread_fill,"), "one computation"),
    (dropping("%buffer_b,"), "one computation"),
    (dropping("%buffer_c,"), "one computation"),
    (replacing("#gpu.thread<y>, #gpu.thread<x>", "#gpu.warp<y>, #gpu.warp<x>"), "the loops"),
    (replacing("tile_sizes [0, 0, 8,", "tile_sizes [0, 0, 4,"), "the loops"),
    (replacing(" outer_perm = [1, 0] inner_perm", " outer_perm = [0, 1] inner_perm"), "b)"),
    (replacing(" inner_perm = [1, 0]", " inner_perm = [0, 1]"), "b)"),
    (replacing("{memory_space = 2", "{memory_space = 1"), "one computation"),
])  # fmt: skip
def test_other_structures_are_found_out(script: str, says: str) -> None:
    proof = air.prove_air(PROBLEM, PLAN, script)
    assert proof.failure == "structure", (proof.failure, proof.message)
    assert f"wished for: {says}" in proof.message


def with_lines(*lines: str) -> str:
    """The script with lines before the buffers, where the packed kernel is a tensor op."""
    return replacing("// buffers\n", "\n    ".join(["// buffers", *lines]) + "\n")


WRONG_MAPS = (
    "[affine_map<(m, n, k, i, j, l) -> (k, m, i, l)>, "
    "affine_map<(m, n, k, i, j, l) -> (n, k, j, l)>, " + RESULT + "]"
)


@pytest.mark.parametrize(
    "script",
    [
        with_lines(
            f"%maps = transform.param.constant {WRONG_MAPS} -> !transform.any_param",
            'transform.annotate %inner_chunk "indexing_maps" = %maps '
            ": !transform.any_op, !transform.any_param",
        ),
        with_lines(
            '%zero = transform.structured.match ops{["arith.constant"]} '
            "attributes{value = 0 : i32} in %func : (!transform.any_op) -> !transform.any_op",
            "%one = transform.param.constant 1 : i32 -> !transform.any_param",
            'transform.annotate %zero "value" = %one : !transform.any_op, !transform.any_param',
        ),
    ],
    ids=["permuted", "started from one"],
)
def test_wrong_results_are_found_out(script: str) -> None:
    proof = air.prove_air(PROBLEM, PLAN, script)
    assert proof.failure == "wrong", (proof.failure, proof.message)
    assert proof.applied and proof.executed and not proof.ok


@pytest.mark.parametrize("end", ENDS)
def test_scripts_apply_with_plain_iree_opt(end: str, tmp_path: Path) -> None:
    problem = matmul("m=61,n=67,k=101,dtype=i32")
    script = air.emit_air(problem, streaming(SMALL, end))
    assert "iree" not in script.partition("module")[2]
    path = tmp_path / "module.mlir"
    path.write_text(air.air_module(problem, script))
    tool = Path(sys.executable).parent / "iree-opt"
    done = subprocess.run(
        [tool, "--transform-interpreter", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("linalg.pack ") == 2
    assert done.stdout.count("memref.alloc()") == done.stdout.count("memref.dealloc")
