"""Air scripts give the right result, and those that would not are found out."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.mlir.air.build import ENDS, SMALL, THREADS_OWN, matmul, streaming
from tilewise.kernels.mlir.air import (
    KStreaming,
    Memories,
    air_module,
    emit_air,
    prove_air,
    script_for,
)
from tilewise.kernels.mlir.air.prove import runnable
from tilewise.kernels.mlir.proof.proof import ScriptProof
from tilewise.kernels.problem import Matmul

PROBLEM = matmul("m=64,n=64,k=128,dtype=i32")
PLAN = streaming(SMALL)
RESULT = "affine_map<(m, n, k, i, j, l) -> (n, m, i, j)>"


def proven(problem: Matmul, schedule: KStreaming) -> ScriptProof:
    return prove_air(problem, schedule, emit_air(problem, schedule))


@pytest.mark.full
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("m=1024,n=512,k=2048,dtype=i32", THREADS_OWN),
        ("m=32,n=32,k=64,dtype=i32", (32, 32, 16, 16, 16, 8, 8, 8, 8)),
        ("m=15,n=21,k=140,dtype=i32", (15, 21, 5, 7, 35, 7, 5, 1, 7)),
        ("m=1,n=1,k=1,dtype=i32", (1,) * 9),
        ("m=61,n=67,k=101,dtype=i32", SMALL),
        ("m=64,n=64,k=101,dtype=i8", SMALL),
        ("m=64,n=61,k=128,dtype=f32", SMALL),
        ("m=3,n=64,k=128,dtype=bf16", SMALL),
        ("m=64,n=64,k=128,dtype=i8", SMALL),
        ("m=64,n=64,k=128,dtype=f32", SMALL),
        ("m=64,n=64,k=128,dtype=f64", SMALL),
        ("m=64,n=64,k=128,dtype=f16", SMALL),
        ("m=64,n=64,k=128,dtype=bf16", SMALL),
    ],
)
def test_every_dtype_is_executed(text: str, sizes: tuple[int, ...], end: str) -> None:
    problem = matmul(text)
    proof = proven(problem, streaming(sizes, end))
    assert proof.ok, proof.message
    if not problem.element.is_float:
        assert (proof.max_error, proof.tolerance) == (0.0, 0.0)


@pytest.mark.parametrize("end", ENDS)
def test_what_the_model_chooses_proves_and_says_so(end: str) -> None:
    made = script_for(matmul("m=96,n=120,k=200,dtype=i8"), result=end)
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
    body = [emit_air(p, plan).partition("module")[2] for p in (large, small)]
    assert body[0] == body[1]
    made = script_for(large, Memories(l1_bytes=32 << 10))
    assert "executed on a processor on matmul:m=" in made.text


def dropping(line: str) -> str:
    script = emit_air(PROBLEM, PLAN)
    assert script.count(line) == 1
    return "\n".join(text for text in script.splitlines() if line not in text)


def replacing(old: str, new: str) -> str:
    script = emit_air(PROBLEM, PLAN)
    assert old in script
    return script.replace(old, new, 1)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (
            dropping("fuse_into_containing_op %copy_b").replace(
                "allocation %outer_copy_b", "allocation %copy_b"
            ),
            "a) two",
        ),
        (dropping("%buffer_l2_a"), "a) two"),
        (dropping("%thread_fill,"), "one computation"),
        (dropping("%buffer_b,"), "one computation"),
        (dropping("%buffer_c,"), "one computation"),
        (replacing("#gpu.thread<y>, #gpu.thread<x>", "#gpu.warp<y>, #gpu.warp<x>"), "the loops"),
        (replacing("tile_sizes [0, 0, 8,", "tile_sizes [0, 0, 4,"), "the loops"),
        (replacing(" outer_perm = [1, 0] inner_perm", " outer_perm = [0, 1] inner_perm"), "b)"),
        (replacing(" inner_perm = [1, 0]", " inner_perm = [0, 1]"), "b)"),
        (replacing("{memory_space = 2", "{memory_space = 1"), "one computation"),
    ],
)
def test_other_structures_are_found_out(script: str, says: str) -> None:
    proof = prove_air(PROBLEM, PLAN, script)
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
    proof = prove_air(PROBLEM, PLAN, script)
    assert proof.failure == "wrong", (proof.failure, proof.message)
    assert proof.applied and proof.executed and not proof.ok


@pytest.mark.parametrize("end", ENDS)
def test_scripts_apply_with_plain_iree_opt(end: str, tmp_path: Path) -> None:
    problem = matmul("m=61,n=67,k=101,dtype=i32")
    script = emit_air(problem, streaming(SMALL, end))
    assert "iree" not in script.partition("module")[2]
    path = tmp_path / "module.mlir"
    path.write_text(air_module(problem, script))
    tool = Path(sys.executable).parent / "iree-opt"
    done = subprocess.run(
        [tool, "--transform-interpreter", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("linalg.pack ") == 2
    assert done.stdout.count("memref.alloc()") == done.stdout.count("memref.dealloc")
