"""A program's library computes what its steps say, and shows its own functions alone."""

import ctypes
from pathlib import Path

import numpy as np
import pytest

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.objects.object_files import Elf
from tilewise.kernels.native.passes.rows.program import Operation, RowProgram, Source, WrittenTensor
from tilewise.kernels.native.programs import compile as compiling
from tilewise.kernels.native.programs.compile import OF_C, compiled_program, shared_library
from tilewise.kernels.native.programs.steps import At, NetworkProgram, Pass, ProgramStep, Row, Table
from tilewise.kernels.oracle.operands import empty_aligned
from tilewise.kernels.target import detect

pytest.importorskip("iree.compiler", reason="its linker; iree-base-compiler is not installed")
ROWS, LENGTH = 6, 5
COUNT = ROWS * LENGTH
NAME = "tilewise_test"


RELU = RowProgram(
    LENGTH,
    (Source("f32", is_wide=True, row=LENGTH),),
    (Operation("read"), Operation("number", (), 0.0), Operation("max", (0, 1))),
    (WrittenTensor("f32", 2, is_wide=True),),
)


def steps() -> tuple[ProgramStep, ...]:
    """Rows of the weights in reverse, then half of them cut off at 0 by each of two threads."""
    froms = Table(tuple(LENGTH * row for row in reversed(range(ROWS))))
    tos = Table(tuple(LENGTH * row for row in range(ROWS)))
    copy: Row = (At("weights", 0), At("activations", 0), 0, ROWS, froms, tos, LENGTH, COUNT, COUNT)
    ends = At("activations", 0), At("activations", 4 * COUNT)
    source, target = ends
    cuts = tuple((0, 0, *part, source, 0, target) for part in ((0, 2), (2, ROWS)))
    return ProgramStep(Pass("rows 4"), (copy,)), ProgramStep(RELU, cuts)


def test_a_program_runs_from_a_library(tmp_path: Path) -> None:
    program = NetworkProgram(NAME, detect().with_threads(2), steps(), 8 * COUNT)
    code = compiled_program(program)
    undefined = {name for data in code.objects.values() for name in Elf.read(data).undefined}
    assert {name for name in undefined if not name.startswith(NAME)} <= OF_C
    path = tmp_path / "program.so"
    path.write_bytes(shared_library(code))
    library = ctypes.CDLL(str(path))
    assert all(hasattr(library, name) for name in code.functions)
    assert not hasattr(library, f"{NAME}_pass0")
    assert library[f"{NAME}_supported"]() == 1
    weights = empty_aligned((ROWS, LENGTH), np.float32)
    weights[...] = np.random.default_rng(0).standard_normal(weights.shape)
    activations = empty_aligned((program.activations_bytes,), np.uint8)
    activations[...] = 0
    run = library[f"{NAME}_run"]
    run.argtypes, run.restype = [ctypes.c_void_p] * 2, None
    run(activations.ctypes.data, weights.ctypes.data)
    made = activations[: 8 * COUNT].view(np.float32).reshape(2, ROWS, LENGTH)
    assert np.array_equal(made[0], weights[::-1])
    assert np.array_equal(made[1], np.maximum(weights[::-1], 0))


def test_what_others_would_have_to_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    row = At("weights", 0), At("activations", 0), 0, 4, 8, 16
    program = NetworkProgram(NAME, detect(), (ProgramStep(Pass("sum"), (row,)),), 1024)
    assert compiled_program(program).objects
    monkeypatch.setattr(compiling, "OF_C", frozenset())
    with pytest.raises(LoweringError, match="of the program would call mem"):
        compiled_program(program)
