"""IREE's compiler as a child, and the results of compiled modules."""

from pathlib import Path

import numpy as np
import pytest

from tilewise.kernels.errors import CompilerError
from tilewise.kernels.mlir.iree import compiler
from tilewise.kernels.mlir.iree.compiler import compile_module, compiled_text
from tilewise.kernels.mlir.iree.runtime import LoadedModule, open_device

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")
pytest.importorskip("iree.runtime", reason="iree-base-runtime is not installed")


def test_a_text_that_iree_refuses_is_an_error_with_its_message() -> None:
    with pytest.raises(CompilerError, match=r"does not compile: .*nonsense"):
        compile_module("func.func @kernel() { nonsense }")


def test_a_compilation_that_takes_too_long_is_killed() -> None:
    with pytest.raises(CompilerError, match=r"no code after"):
        compile_module("func.func @kernel() { return }", seconds=0.01)


def test_a_module_can_be_had_after_a_phase() -> None:
    text = compiled_text(
        "func.func @kernel(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }", "abi"
    )
    assert "util.func public @kernel" in text
    assert "!hal.buffer_view" in text


@pytest.mark.parametrize(("said", "signal", "told"), [
    ("LLVM ERROR: no such operand!", "ABRT", "no such operand!"),
    ("PLEASE submit a bug report", "SEGV", "the compiler ended with SIGSEGV"),
])  # fmt: skip
def test_of_a_compiler_that_crashes_the_error_is_told_and_not_its_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, signal: str, told: str
) -> None:
    tool = tmp_path / "iree-compile"
    tool.write_text(
        f"#!/bin/sh\necho '{said}' >&2\n"
        "echo 'Stack dump:' >&2\necho ' #0 0x2016ae _start (iree-compile+0x2016ae)' >&2\n"
        f"kill -{signal} $$\n"
    )
    tool.chmod(0o755)
    monkeypatch.setattr(compiler, "find_compiler", lambda: str(tool))
    with pytest.raises(CompilerError, match=rf"^does not compile: {told}$"):
        compile_module("func.func @kernel() { return }")


def test_where_a_processor_hides_features_an_older_model_is_named_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "iree-compile"
    tool.write_text(
        "#!/bin/sh\n"
        "case \"$*\" in *target-cpu=host*) echo 'LLVM ERROR: cannot select' >&2; exit 134;; esac\n"
        'while [ "$1" != -o ]; do shift; done; printf compiled > "$2"\n'
    )
    tool.chmod(0o755)
    monkeypatch.setattr(compiler, "find_compiler", lambda: str(tool))
    monkeypatch.setattr(compiler, "older_model", lambda _: None)
    with pytest.raises(CompilerError, match="cannot select"):
        compile_module("")
    monkeypatch.setattr(compiler, "older_model", lambda _: "icelake-server")
    assert compile_module("") == b"compiled"


MODULE = b"""
func.func @main(%a: tensor<37x13xf32>, %b: tensor<13x33xf32>, %c: tensor<37x33xf32>)
    -> tensor<37x33xf32> {
  %y = linalg.matmul ins(%a, %b : tensor<37x13xf32>, tensor<13x33xf32>)
                     outs(%c : tensor<37x33xf32>) -> tensor<37x33xf32>
  return %y : tensor<37x33xf32>
}"""


def test_an_argument_that_sums_start_from_stays_as_it_was() -> None:
    module = LoadedModule(compile_module(MODULE), open_device(1))
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype(np.float32)
              for shape in ((37, 13), (13, 33), (37, 33))]  # fmt: skip
    kept = [array.copy() for array in arrays]
    given = [(array, "FLOAT_32") for array in arrays]
    found = [module.results("main", given)[0] for _ in range(2)]
    for array, before in zip(arrays, kept, strict=True):
        assert np.array_equal(array, before)
    for one in found:
        np.testing.assert_allclose(one, kept[0] @ kept[1] + kept[2], rtol=1e-5, atol=1e-5)
