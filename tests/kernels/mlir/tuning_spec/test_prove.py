"""Proofs of specs: what is served was run, compared, and is faster than IREE alone."""

import re
import time

import pytest

from tests.kernels.mlir.tuning_spec.schedules import plain
from tilewise.kernels.errors import CompilerError
from tilewise.kernels.mlir.proof.proof import ScriptProof
from tilewise.kernels.mlir.tuning_spec import prove as proving
from tilewise.kernels.mlir.tuning_spec.config import TileSize
from tilewise.kernels.mlir.tuning_spec.prove import prove
from tilewise.kernels.mlir.tuning_spec.text import entry_of, joined
from tilewise.kernels.problem import parse_problem

pytest.importorskip("iree.runtime", reason="IREE's runtime, which runs the code, is not installed")

PROBLEM = parse_problem("matmul:m=45,n=130,k=67,dtype=f32,bias,epilogue=relu")


def proof_of() -> ScriptProof:
    return prove(PROBLEM, plain(PROBLEM))


@pytest.mark.full
def test_a_proof_ran_compared_and_timed_beside_iree_alone() -> None:
    proof = proof_of()
    assert proof.applied and proof.executed
    assert proof.max_error is not None and proof.tolerance is not None
    assert proof.max_error <= proof.tolerance
    assert proof.failure in (None, "slower")  # which of them says the machine
    if proof.failure == "slower":
        assert re.search(r"IREE alone is faster: .* gain 0\.\d", proof.message)
        assert "// unproven: slower" in proof.script
    else:
        assert all(float(gain) >= 0.99 for gain in re.findall(r"gain ([\d.]+)", proof.script))
        assert entry_of(proof.script).config == plain(PROBLEM)


@pytest.mark.full
def test_constant_weights_are_given_to_the_module() -> None:
    problem = parse_problem("matmul:m=24,n=64,k=40,dtype=bf16,weights=constant")
    proof = prove(problem, plain(problem))
    assert proof.executed and proof.failure in (None, "slower")


def test_sizes_that_iree_refuses_fail_to_compile() -> None:
    problem = parse_problem("matmul:m=512,n=512,k=512,dtype=f32,bias")
    cut = [TileSize("cache_parallel", "m", 256), TileSize("cache_reduction", "k", 64)]
    proof = prove(problem, plain(problem, *cut))
    assert (proof.failure, proof.executed) == ("apply", False)  # none but the unfused op takes them
    assert "no op matched" in proof.message


def test_a_result_that_is_wrong_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of another problem of the same shapes: it runs, and computes no relu."""
    other = parse_problem("matmul:m=45,n=130,k=67,dtype=f32,bias")
    compiled = proving.compile_with
    monkeypatch.setattr(
        proving, "compile_with", lambda text, problem, seconds: compiled(
            proving.spec_text([proving.SpecEntry(other, plain(other))]), other, seconds
        )
    )  # fmt: skip
    proof = proof_of()
    assert (proof.failure, proof.applied, proof.executed) == ("wrong", True, True)


def test_a_spec_that_nothing_was_timed_beside_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the time may be over before IREE's own modes have compiled."""

    def slow(_text: str, _flags: tuple[str, ...], seconds: float) -> bytes:
        time.sleep(seconds)
        raise CompilerError(f"no code after {seconds:.0f} s")

    monkeypatch.setattr(proving, "compile_with", lambda *_: b"")
    monkeypatch.setattr(proving, "compile_module", slow)
    proof = prove(PROBLEM, plain(PROBLEM), seconds=0.2)
    assert (proof.failure, proof.ok) == ("timeout", False)
    assert proof.message == "no time to compare with IREE's default: no code after 0 s"


def test_one_file_has_each_op_once() -> None:
    texts = ("bias", "bias,epilogue=relu", "weights=constant", "transpose_b")
    problems = [parse_problem(f"matmul:m=16,n=32,k=8,dtype=f32,{more}") for more in texts]
    entries = [proving.SpecEntry(problem, plain(problem)) for problem in problems]
    text, left_out = joined(entries)
    assert [one.problem for one in left_out] == [problems[1].canonical]
    assert left_out[0].reason == f"its op is matched by the entry of {problems[0]}"
    assert text.count("-> @apply_op_config") == 3
