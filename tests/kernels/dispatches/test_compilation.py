"""A module with a library computes rightly, whatever flags its user compiles with."""

import numpy as np
import pytest

from tests.kernels.dispatches.matching import random_arrays
from tilewise.kernels.dispatches.compilation import compiled_with, replaced_in
from tilewise.kernels.dispatches.executable import LibraryEntry
from tilewise.kernels.dispatches.library import library_text
from tilewise.kernels.errors import CompilerError
from tilewise.kernels.mlir.iree.module_text import module_text
from tilewise.kernels.mlir.iree.runtime import LoadedModule, open_device
from tilewise.kernels.mlir.payload.function import ENTRY
from tilewise.kernels.oracle.operands import poison
from tilewise.kernels.problem import Matmul
from tilewise.kernels.schedule import Pack, Register, Schedule, Tile
from tilewise.kernels.target import Target

FLAGS = [
    "--iree-llvmcpu-link-embedded=false",
    "--iree-llvmcpu-target-cpu=generic",
    "--iree-opt-level=O3",
    "--iree-opt-data-tiling",
]
PROBLEM = Matmul(m=9, n=33, k=19, dtype="f32", bias=True, epilogue="relu")


def library(target: Target) -> str:
    """With panels, which are memory that IREE has to give."""
    steps = Tile("n", 32), Pack("B"), Tile("m", 8), Pack("A"), Register(4, target.lanes("f32"))
    return library_text([LibraryEntry(PROBLEM, Schedule(steps))], target)


@pytest.mark.full
@pytest.mark.parametrize("flag", FLAGS)
def test_no_flag_of_the_compiler_changes_what_is_computed(flag: str, host: Target) -> None:
    pytest.importorskip("iree.runtime", reason="iree-base-runtime is not installed")
    made = compiled_with(module_text(PROBLEM), library(host), (flag,))
    assert len(made.kernels) == 1
    arrays = random_arrays((9, 19), (19, 33), (33,), (9, 33))
    a, b, bias, out = arrays
    poison(out)
    LoadedModule(made.code, open_device(1)).bind(ENTRY, [(one, "f32") for one in arrays])(1)
    np.testing.assert_allclose(out, np.maximum(a @ b + bias, 0), atol=1e-5)


def test_another_architecture_does_not_link(host: Target) -> None:
    flags = (
        "--iree-llvmcpu-target-triple=aarch64-unknown-linux-gnu",
        "--iree-llvmcpu-target-cpu=generic",
    )
    with pytest.raises(CompilerError):
        compiled_with(module_text(PROBLEM), library(host), flags)


def test_a_library_that_finds_nothing_says_so_here(host: Target) -> None:
    other = Matmul(m=9, n=33, k=18, dtype="f32", bias=True, epilogue="relu")
    assert replaced_in(module_text(other), library(host)) == ()
