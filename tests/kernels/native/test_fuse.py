"""Convolutions of single pixels, computed as products of matrices."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from tests.kernels.native_case import TARGETS, check
from tests.kernels.nest.test_steps import check as check_nest
from tests.kernels.strategies import convolutions, schedules
from tilewise.kernels.errors import ScheduleError, UnsupportedError
from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.kernels.native import lower
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.oracle.reference import reference
from tilewise.kernels.problem import Conv2d, Matmul, parse_problem
from tilewise.kernels.schedule import Fuse, Pack, Register, Schedule, Tile, loop_nest
from tilewise.kernels.target import Target

PIXELS = "conv2d:n=2,h=3,w=5,ci=8,co=20,kh=1,kw=1,dtype=f32,bias,epilogue=relu"
SCHEDULE = Schedule((Fuse(), Pack("B"), Register(4, 16)))


def of_pixels(problem: Conv2d) -> Conv2d:
    """The convolution with a filter of one pixel, of all channels."""
    alone = {"kh": 1, "kw": 1, "stride": 1, "dilation": 1, "pad": 0, "groups": 1}
    return replace(problem, layout="nhwc_hwcf", **alone)


@cases(25, short=10)
@given(st.data(), convolutions().map(of_pixels), st.sampled_from(TARGETS))
def test_any_schedule_behind_it_is_right(
    data: st.DataObject, problem: Conv2d, target: Target
) -> None:
    matrices = problem.as_matmul
    assert matrices is not None
    inner = data.draw(schedules(matrices, target))
    schedule = Schedule((Fuse(), *inner.steps))
    nest = loop_nest(problem, schedule)
    assert nest == loop_nest(matrices, inner)
    check(problem, schedule, target, data.draw(st.integers(0, 9)))
    check_nest(nest)


def test_images_lines_and_pixels_are_rows_of_one_matrix(host: Target) -> None:
    problem = parse_problem(PIXELS)
    matrices = parse_problem("matmul:m=30,n=20,k=8,dtype=f32,bias,epilogue=relu")
    assert isinstance(matrices, Matmul) and problem.as_matmul == matrices
    operands = make_operands(problem, 3)
    lower(problem, SCHEDULE, host).bind(operands)()
    right = reference(problem, make_operands(problem, 3)).value
    np.testing.assert_allclose(operands["C"], right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "other", ["stride=2", "pad=1", "groups=2", "layout=nchw_fchw", "kh=2", "stride=1x2", "kw=3"]
)
def test_other_convolutions_are_refused(other: str) -> None:
    name = other.partition("=")[0]
    keys = [key for key in PIXELS.split(",") if not key.startswith(f"{name}=")]
    with pytest.raises(ScheduleError, match="step 'fuse' cannot be applied"):
        loop_nest(parse_problem(",".join([*keys, other])), SCHEDULE)


def test_dims_of_the_image_are_gone() -> None:
    schedule = Schedule((Fuse(), Tile("oh", 1), Pack("B"), Register(4, 16)))
    with pytest.raises(ScheduleError, match="oh"):
        loop_nest(parse_problem(PIXELS), schedule)


def test_its_schedules_have_no_script() -> None:
    with pytest.raises(UnsupportedError, match="the step fuse has no script"):
        emit_script(parse_problem(PIXELS), SCHEDULE)
