"""Steps that no script covers."""

import pytest

from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule, Winograd


def test_winograd_has_no_script() -> None:
    problem = parse_problem("conv2d:n=1,h=9,w=9,ci=8,co=32,kh=3,kw=3,dtype=f32")
    schedule = Schedule((Winograd(4), Pack("B"), Pack("A"), Register(4, 32)))
    with pytest.raises(UnsupportedError, match="the step winograd has no script"):
        emit_script(problem, schedule)
