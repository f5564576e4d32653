"""Libraries for IREE whose kernels use matrix tiles: every process that runs them asks Linux."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tilewise.kernels.dispatches.compilation import compiled_with
from tilewise.kernels.dispatches.executable import LibraryEntry
from tilewise.kernels.dispatches.library import library_text
from tilewise.kernels.mlir.iree.module_text import module_text
from tilewise.kernels.mlir.payload.function import ENTRY
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import InstructionChoice, Pack, Register, Schedule
from tilewise.kernels.target import Target
from tilewise.kernels.target.machine import described

PROBLEM = "matmul:m=64,n=96,k=64,dtype=bf16"
TILES = Schedule((Pack("B"), InstructionChoice("x86.amx.tdpbf16ps"), Register(32, 32, "rows")))
VECTORS = Schedule((Pack("B"), Pack("A"), Register(4, 32)))
SERVER = described("sapphirerapids", ("avx512f", "avx512bw", "fma", "avx2", "amx-tile", "amx-bf16"))
SHIM = re.compile(r"func\.func @(run|prepare)_[^{]*\{(.*?)return", re.DOTALL)


def asking(schedule: Schedule) -> dict[str, bool]:
    """Whether the shims ask, by what they do."""
    entry = LibraryEntry(parse_problem(f"{PROBLEM},weights=constant"), schedule)
    shims = SHIM.findall(library_text([entry], SERVER))
    return {does: '"syscall"' in body for does, body in shims}


def test_only_calls_that_use_tiles_ask() -> None:
    assert asking(TILES) == {"run": True, "prepare": False}
    assert asking(VECTORS) == {"run": False, "prepare": False}


def test_a_program_that_never_asked_runs_a_library(host: Target, tmp_path: Path) -> None:
    if "amx-tile" not in host.features:
        pytest.skip("this machine has no amx-tile")
    pytest.importorskip("iree.runtime", reason="iree-base-runtime is not installed")
    problem = parse_problem(PROBLEM)
    made = compiled_with(module_text(problem), library_text([LibraryEntry(problem, TILES)], host))
    assert len(made.kernels) == 1
    (tmp_path / "module.vmfb").write_bytes(made.code)
    inputs = ("64x64xbf16=1", "64x96xbf16=2", "64x96xf32=0")
    program = Path(sys.executable).with_name("iree-run-module")
    done = subprocess.run(
        [program, "--module=module.vmfb", f"--function={ENTRY}", "--device=local-sync",
         *(f"--input={one}" for one in inputs), "--output=@out.bin"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done
    assert (np.fromfile(tmp_path / "out.bin", np.float32) == np.full(64 * 96, 2.0 * 64)).all()
