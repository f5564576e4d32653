"""Images in parts: strided lines parted in registers, and blocks at the borders."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from iree.compiler import ir

from tests.cases import cases
from tilewise.kernels.mlir.cpu.borders import ImageAxis, OutputPart, parts
from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.kernels.mlir.lowering.apply import Diagnostics, apply_script
from tilewise.kernels.mlir.lowering.jit import RepeatedCall, compile_ir
from tilewise.kernels.mlir.lowering.to_llvm import lower
from tilewise.kernels.mlir.payload.function import ENTRY, argument_names, payload
from tilewise.kernels.mlir.transform.module import with_payload
from tilewise.kernels.oracle.operands import NUMPY_TYPES, empty_aligned, make_operands, poison
from tilewise.kernels.oracle.reference import compare, reference
from tilewise.kernels.problem import Conv2d, parse_problem
from tilewise.kernels.schedule import Register, Schedule, Tile

LAYER = (
    "conv2d:n=1,h=12,w=40,ci=3,co=3,kh=3,kw=3,pad=1,stride=2,groups=3,layout=nchw_fchw,dtype=f32"
)
PARTED = "linalg.transpose"


@st.composite
def strided(draw: st.DrawFn) -> tuple[Conv2d, Schedule]:
    """Planes of whole strides, some wider than a vector, and steps for them."""
    stride, kh, kw = draw(st.integers(2, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
    planes = draw(st.integers(2, 3))
    problem = Conv2d(
        n=draw(st.integers(1, 2)), h=draw(st.integers(5, 12)), w=stride * draw(st.integers(3, 26)),
        ci=planes, co=planes * draw(st.integers(1, 2)), groups=planes, kh=kh, kw=kw, stride=stride,
        pad=draw(st.integers(0, min(kh, kw) - 1)), layout="nchw_fchw",
        dtype=draw(st.sampled_from(["f32", "i8"])),
    )  # fmt: skip
    tiles = [Tile("n", 1)] if problem.n > 1 else []
    if draw(st.booleans()) and problem.oh > 2:
        tiles.append(Tile("oh", 2))
    rows = draw(st.integers(1, 2)) if problem.oh > 1 else 1
    register = Register(rows, 16, "rows" if draw(st.booleans()) else "cols")
    return problem, Schedule((*tiles, register))


@cases(10, short=4)
@given(strided())
def test_pixels_find_their_taps_and_no_others(drawn: tuple[Conv2d, Schedule]) -> None:
    problem, steps = drawn
    assert PARTED in payload(problem)
    operands = make_operands(problem, 0)
    if problem.element.is_float:
        operands["A"].reshape(-1)[::41] = np.nan  # a product with a tap of zero would spread it
    text = with_payload(problem, emit_script(problem, steps))
    with ir.Context() as context, ir.Location.unknown():
        diagnostics = Diagnostics(context)
        lowered, scratch = lower(apply_script(text, diagnostics), diagnostics)
    arrays = [operands[name] for name in argument_names(problem)]
    buffers = [empty_aligned(s.shape, NUMPY_TYPES[s.element]) for s in scratch]
    for buffer in buffers:
        poison(buffer)
    poison(operands["C"])
    RepeatedCall(compile_ir(lowered, ENTRY), [*arrays, *buffers], operands["C"])(1)
    expected = reference(problem, operands)
    spread, found = np.isnan(expected.value), np.isnan(operands["C"])
    assert np.array_equal(spread, found)
    for values in (operands["C"], expected.value, expected.tolerance):
        if values is not None:
            values[spread] = 0 if values is not expected.tolerance else 1
    assert np.less_equal(*compare(problem, operands["C"], expected))


@pytest.mark.parametrize("keys", ["dilation=2", "w=39", "ci=6", "pad=3"])
def test_other_strided_planes_are_gathered(keys: str) -> None:
    name = keys.partition("=")[0]
    kept = [key for key in LAYER.split(",") if not key.startswith(f"{name}=")]
    assert PARTED not in payload(parse_problem(",".join([*kept, keys])))


INSIDE_BUT_ENDS = ImageAxis(extent=56, stride=1, reach=2, pad=1)


@pytest.mark.parametrize(("arguments", "found"), [
    ((56, 8, 1, 0, INSIDE_BUT_ENDS), [OutputPart(8, 0), OutputPart(40), OutputPart(8, 48)]),
    ((54, 32, 16, None, None), [OutputPart(32), OutputPart(16), OutputPart(6)]),
    ((54, 16, 16, None, None), [OutputPart(48), OutputPart(6)]),
    # The first and the last of these blocks cut again.
    ((8, 2, 1, 0, INSIDE_BUT_ENDS), [OutputPart(2, 0), OutputPart(6)]),
    ((8, 2, 1, 48, INSIDE_BUT_ENDS), [OutputPart(6), OutputPart(2, 54)]),
])  # fmt: skip
def test_blocks_beside_the_image_are_apart_and_those_inside_together(arguments, found) -> None:
    assert parts(*arguments) == found
