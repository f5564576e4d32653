"""Whatever a script or a child does, the parent survives it and says what happened."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.mlir.build import IN_PLACE, PACKED, schedule
from tests.kernels.system.test_system import wait_until_gone
from tilewise.kernels.errors import LimitError, ProofError
from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.kernels.mlir.proof.proof import ProofReply, run_child
from tilewise.kernels.mlir.proof.prove import prove, prove_script, transform, verify
from tilewise.kernels.mlir.transform.module import with_payload
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.system.children import child_environment
from tilewise.kernels.system.limited_child import LIBRARIES, MOST_PRINTED

SQUARE = parse_problem("matmul:m=16,n=16,k=16,dtype=f32")
MATCHED = "in %root : (!transform.any_op) -> !transform.any_op\n"
SWAPPED = "[affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, k)>, {c}]"
TRANSPOSED = "[affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (k, n)>, {c}]"
RESULT = "affine_map<(m, n, k) -> (m, n)>"


def with_lines(*lines: str, problem: Problem = SQUARE) -> str:
    """The script of `problem` with `lines` after its two matches."""
    script = emit_script(problem, schedule(*IN_PLACE))
    head, mark, tail = script.rpartition(MATCHED)
    return head + mark + "".join(f"    {line}\n" for line in lines) + tail


def with_maps(maps: str) -> str:
    return with_lines(
        f"%maps = transform.param.constant {maps.format(c=RESULT)} -> !transform.any_param",
        "%wrong = transform.structured.generalize %contraction "
        ": (!transform.any_op) -> !transform.any_op",
        'transform.annotate %wrong "indexing_maps" = %maps '
        ": !transform.any_op, !transform.any_param",
    ).replace("%contraction tile_sizes", "%wrong tile_sizes")


def with_start(value: str, problem: Problem = SQUARE) -> str:
    kind = problem.element.accumulator
    return with_lines(
        '%zero = transform.structured.match ops{["arith.constant"]} in %root '
        ": (!transform.any_op) -> !transform.any_op",
        f"%value = transform.param.constant {value} : {kind} -> !transform.any_param",
        'transform.annotate %zero "value" = %value : !transform.any_op, !transform.any_param',
        problem=problem,
    )


STARTS = {
    parse_problem("matmul:m=16,n=16,k=16,dtype=bf16,transpose_b"): "1.0",
    parse_problem("matmul:m=16,n=16,k=16,dtype=i8,transpose_a"): "1",
    parse_problem("conv2d:n=1,h=5,w=6,ci=4,co=32,kh=2,kw=2,dtype=f16"): "1.0",
}


@pytest.mark.full
@pytest.mark.parametrize(("problem", "script"), [
    *((SQUARE, with_maps(maps)) for maps in (SWAPPED, TRANSPOSED)),
    (SQUARE, with_start("1.0")),
    *((problem, with_start(value, problem)) for problem, value in STARTS.items()),
])  # fmt: skip
def test_wrong_results_are_caught(problem: Problem, script: str) -> None:
    proof = prove_script(problem, script)
    assert proof.failure == "wrong", proof.message
    assert proof.applied and proof.executed and not proof.ok
    assert proof.max_error is not None and proof.tolerance is not None
    assert proof.max_error > proof.tolerance


def test_one_script_serves_payloads_that_start_elsewhere() -> None:
    script = emit_script(SQUARE, schedule(*IN_PLACE))
    other = parse_problem("matmul:m=16,n=16,k=16,dtype=f32,init=accumulate,bias,epilogue=relu")
    assert prove_script(other, script).ok


def test_a_script_that_does_not_apply_names_its_line() -> None:
    script = with_lines(
        "transform.structured.vectorize %contraction vector_sizes [1] : !transform.any_op"
    )
    proof = prove_script(SQUARE, script)
    assert proof.failure == "apply"
    assert not proof.applied
    assert proof.message.startswith("line ")
    with pytest.raises(ProofError, match="apply"):
        transform(SQUARE, script)


def test_scalar_code_is_a_structure_failure() -> None:
    script = emit_script(SQUARE, schedule(*IN_PLACE))
    lines = [line for line in script.splitlines() if "structured.vectorize" not in line]
    proof = prove_script(SQUARE, "\n".join(lines))
    assert proof.failure == "structure", proof.message
    assert not proof.vectorised


def in_stage(stage: str, attempt: Callable[[float], tuple[object, str]]) -> tuple[object, str]:
    """The failure of an attempt whose time limit, in seconds, ends it in a stage.

    On a busy machine a short limit ends it before that.
    """
    failure: object = None
    message = ""
    for seconds in (3.0, 12.0, 48.0, 192.0):
        failure, message = attempt(seconds)
        if f"stage {stage}" in message:
            break
    return failure, message


FUNCTION = """
module attributes {{transform.with_named_sequence}} {{
  func.func @kernel(%A: memref<16x16xf32>, %B: memref<16x16xf32>, %C: memref<16x16xf32>)
      -> memref<16x16xf32> {{
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    {body}
    return %C : memref<16x16xf32>
  }}
  transform.named_sequence @__transform_main(%root: !transform.any_op {{transform.readonly}}) {{
    transform.yield
  }}
}}
"""
CRASHES = (
    "%far = arith.constant 1000000000000 : index\n"
    "    %v = memref.load %A[%far, %zero] : memref<16x16xf32>\n"
    "    memref.store %v, %C[%zero, %zero] : memref<16x16xf32>"
)
HANGS = (
    "scf.while : () -> () {\n      %v = memref.load %A[%zero, %zero] : memref<16x16xf32>\n"
    "      memref.store %v, %C[%zero, %zero] : memref<16x16xf32>\n"
    "      %t = arith.constant true\n      scf.condition(%t)\n    } do {\n      scf.yield\n    }"
)


def child(body: str, seconds: float = 30.0, memory_bytes: int = 4 << 30) -> ProofReply:
    request = {
        "problem": SQUARE.canonical, "module": FUNCTION.format(body=body), "seed": 0,
        "seconds": seconds, "memory_bytes": memory_bytes, "repeat_s": 0.01,
    }  # fmt: skip
    return run_child(request)


@pytest.mark.full
def test_a_hang_is_a_timeout_that_names_the_stage() -> None:
    def attempt(seconds: float) -> tuple[object, str]:
        reply = child(HANGS, seconds=seconds)
        return reply.failure, str(reply.message)

    assert in_stage("run", attempt) == ("timeout", "killed at the time limit in stage run")


def test_a_segmentation_fault_is_a_crash() -> None:
    reply = child(CRASHES)
    assert reply.failure == "crash", reply
    assert "SIGSEGV" in str(reply.message)


def test_too_little_memory_is_a_memory_failure() -> None:
    assert child(HANGS, memory_bytes=64 << 20).failure == "memory"


@pytest.mark.parametrize("steps", [PACKED, IN_PLACE])
def test_scripts_apply_with_plain_iree_opt(steps: tuple[str, ...], tmp_path: Path) -> None:
    script = emit_script(SQUARE, schedule(*steps))
    assert "iree" not in script
    path = tmp_path / "module.mlir"
    path.write_text(with_payload(SQUARE, script))
    command = [Path(sys.executable).with_name("iree-opt"), "--transform-interpreter", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "vector.fma" in done.stdout


CHILDREN = "tests.kernels.mlir.children"
LONG = 600.0


def asked(do: str, seconds: float = LONG, **more: Any) -> ProofReply:
    """What becomes of a child that does this."""
    limits = {"seconds": seconds, "memory_bytes": 4 << 30}
    return run_child({"do": do, **limits, **more}, CHILDREN)


def test_a_child_that_waits_is_stopped_by_its_parent() -> None:
    """It uses no processor time, so no limit of its own ends it."""
    assert asked("sleep", seconds=2.0, for_s=60).failure == "timeout"


@pytest.mark.full
@pytest.mark.parametrize(("seconds", "for_s"), [(LONG, 0), (5.0, LONG)])
def test_what_a_child_has_started_ends_with_it(seconds, for_s, tmp_path) -> None:
    path = tmp_path / "pid"
    asked("beget", seconds=seconds, for_s=for_s, path=str(path))
    wait_until_gone(int(path.read_text()))


@pytest.mark.parametrize("to", [1, 2])
def test_a_child_that_prints_without_end_is_stopped_at_a_size(to: int) -> None:
    reply = asked("speak", to=to)
    assert reply.failure == "output"
    assert f"more than {MOST_PRINTED >> 20} MiB" in reply.message


def test_a_reply_may_be_large_but_not_larger_than_what_is_printed() -> None:
    assert len(asked("tell", bytes=MOST_PRINTED // 2).message) == MOST_PRINTED // 2
    assert asked("tell", bytes=MOST_PRINTED).failure == "output"


def test_a_child_that_ends_without_a_reply_has_crashed() -> None:
    reply = asked("leave")
    assert (reply.failure, "without a reply" in reply.message) == ("crash", True)


def test_a_child_that_raises_an_error_is_reported_without_a_traceback() -> None:
    reply = asked("nothing that it can do")
    assert reply.failure == "crash"
    assert reply.message.splitlines() == [
        "the child ended with exit code 1 in stage start",
        "KeyError: 'nothing that it can do'",
    ]


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 1e30, -1.0, 0.0])
def test_a_limit_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(LimitError, match=re.escape(f"seconds={seconds:g}:")):
        verify("module {}", problem=SQUARE, seconds=seconds)
    with pytest.raises(LimitError, match="at most"):
        prove_script(SQUARE, "module {}", seconds=seconds)
    with pytest.raises(LimitError, match="at most"):
        prove(SQUARE, schedule(*IN_PLACE), seconds=seconds)
    with pytest.raises(LimitError, match="at most"):
        transform(SQUARE, "module {}", seconds=seconds)


LIMITED = """
import resource
from tilewise.kernels.system.limited_child import limit
limit(0.5, 1 << 30)
print(resource.getrlimit(resource.RLIMIT_AS)[0], resource.getrlimit(resource.RLIMIT_CORE)[0])
import sys
sys.stdout.flush()
while True:
    pass
"""


def test_a_child_whose_parent_cannot_stop_it_ends_by_its_processor_time() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED], env=child_environment(), capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGXCPU
    assert done.stdout.split() == [str((1 << 30) + LIBRARIES), "0"]
