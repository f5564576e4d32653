"""What a declaration means in NumPy is what compiled kernels compute."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.kernels.native_case import TARGETS
from tilewise.kernels import steps
from tilewise.kernels.instructions import Form, Instruction, instructions
from tilewise.kernels.instructions.declaration import DECLARED
from tilewise.kernels.native import lower
from tilewise.kernels.oracle.operands import NUMPY_TYPES, make_operands
from tilewise.kernels.problem import DTYPES, parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule, Split, Step, Stream, Sweep
from tilewise.kernels.target import Target, detect

Array = NDArray[Any]
SQUARE = "matmul:m=9,n=64,k=66,dtype={}"
IN_PARTS = "f32,accuracy=bf16x3"
FORMS: dict[Form, tuple[str, tuple[Step, ...], tuple[Step, ...]]] = {
    Form.OUTER_PRODUCT: (SQUARE, (Pack("B"), Pack("A")), (Register(4, 32),)),
    Form.SKINNY: (SQUARE, (Stream("k", 8),), (Register(3, 32, "rows"), Sweep("n"))),
    Form.SPLIT: (f"{SQUARE},transpose_b", (), (Register(2, 2), Split("k", 16))),
    Form.TILES: (SQUARE, (Pack("B"), Pack("A")), (Register(32, 32),)),
    Form.DEPTHWISE: (
        "conv2d:n=1,h=8,w=8,ci=32,co=32,kh=1,kw=1,groups=32,dtype={}", (), (Register(2, 32),),
    ),
}  # fmt: skip
EXTREMES = np.array([-128, -127, -1, 0, 127], np.int8)
MIXED = ("u8*i8", "i8*u8")


def cases() -> dict[str, tuple[Target, str, Form, Instruction]]:
    """What this machine has, with all features and with fewer."""
    return {
        f"{one.name}-{dtype}-{form.value}": (target, dtype, form, one)
        for target in TARGETS
        for dtype in (*DTYPES, *MIXED, IN_PARTS)
        for form in Form
        for one in instructions(*accurately(dtype, target, form))
        if dtype != IN_PARTS or one.accuracy
    }


def accurately(dtype: str, target: Target, form: Form) -> tuple[str, Target, Form, str]:
    """What `instructions` takes for a type, and the accuracy behind it."""
    name, _, accuracy = dtype.partition(",accuracy=")
    return name, target, form, accuracy


CASES = cases()


@pytest.mark.parametrize("case", CASES)
def test_a_kernel_computes_what_the_instruction_means(case: str) -> None:
    target, dtype, form, one = CASES[case]
    text, before, behind = FORMS[form]
    dtype, _, accuracy = dtype.partition(",accuracy=")
    has_step = form is Form.TILES or len(instructions(dtype, target, form)) > 1
    text += f",accuracy={accuracy}" if accuracy else ""
    step = [steps.InstructionChoice(one.name)] if has_step else []
    problem = parse_problem(text.format(dtype.replace("*", ",b=")))
    schedule = Schedule((*before, *step, *behind))
    operands = make_operands(problem, seed=3)
    rng = np.random.default_rng(3)
    for array in (operands["A"], operands["B"]) if problem.element.bytes == 1 else ():
        array[...] = rng.choice(EXTREMES.view(array.dtype), array.shape)
        array.reshape(-1, array.shape[-1])[:4] = EXTREMES.view(array.dtype)[0]  # whole words
    lower(problem, schedule, target).counted_run(operands)
    a, b, found = (exact(operands[name], problem.dtype) for name in ("A", "B", "C"))
    if form is Form.SPLIT:
        b = b.T
    if form is Form.DEPTHWISE:  # a product of matrices for each channel
        a, b, found = (x.reshape(-1, 32, 1).transpose(1, 0, 2) for x in (a, b, found))
    meant = by_meaning(one, a, b, problem.dtype)
    in_order = form is Form.OUTER_PRODUCT and one.k == 1 and one.c != "f64"
    if in_order or not problem.element.is_float:
        np.testing.assert_array_equal(found, meant)
    else:
        bound = a.shape[-1] * np.finfo(meant.dtype).eps * (np.abs(a) @ np.abs(b))
        assert (np.abs(found - meant) <= bound).all()


def exact(stored: Array, dtype: str) -> Array:
    """Elements of a type that NumPy may lack, in the one of their sums."""
    if stored.dtype == np.uint16:
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(NUMPY_TYPES[DTYPES[dtype].accumulator])


def by_meaning(one: Instruction, a: Array, b: Array, dtype: str) -> Array:
    """The product of matrices, as many steps of the reduction at a time as the instruction has."""
    offset = a.dtype.type(one.offset(dtype))
    sums = np.zeros_like(a @ b) - offset * b.sum(axis=-2, keepdims=True, dtype=b.dtype)
    for start in range(0, a.shape[-1], one.k):
        step = slice(start, start + one.k)
        sums = one.meaning(sums, a[..., step] + offset, b[..., step, :])
    return sums


def test_every_dot_product_of_this_machine_is_one_of_the_cases() -> None:
    dots = {one.name for one in DECLARED if one.k > 1 and one.features <= detect().features}
    assert dots <= {one.name for _, _, _, one in CASES.values()}
