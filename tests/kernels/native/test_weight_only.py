"""Products with quantised weights: right on every target, and rounded block by block as told."""

import numpy as np
import pytest

from tests.kernels.native_case import TARGETS, check
from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.native import lower
from tilewise.kernels.oracle.operands import Array, make_operands, widened
from tilewise.kernels.oracle.reference import compare, reference
from tilewise.kernels.problem import Matmul, parse_problem
from tilewise.kernels.schedule import (
    Pack,
    Parallel,
    Register,
    Schedule,
    Split,
    Step,
    Stream,
    Sweep,
    Tile,
    loop_nest,
)
from tilewise.kernels.target import Target

PACKS = (Pack("B"), Pack("A"))
KINDS = [
    "m=1,n=130,k=331,dtype=bf16,b=i4,group=32,scale=f16",
    "m=7,n=77,k=203,dtype=f32,b=i4,group=128,scale=bf16,zero_b=u4,transpose_b",
    "m=5,n=33,k=331,dtype=bf16,b=i8,group=k,zero_b=u8,bias,epilogue=relu",
    "m=3,n=70,k=96,dtype=f32,b=i8,group=256,init=accumulate,epilogue=relu6",
    "m=17,n=65,k=70,dtype=bf16,b=i4,group=16,a=dynamic_i8,out=bf16,epilogue=gelu,add",
    "m=2,n=40,k=17,dtype=f32,b=i8,group=64,scale=bf16,zero_b=u8,a=dynamic_i8,transpose_b",
]


def problem_of(text: str) -> Matmul:
    """The problem of these keys."""
    problem = parse_problem(f"matmul:{text},weights=constant")
    assert isinstance(problem, Matmul)
    return problem


PLACES = [
    pytest.param(at, target, marks=[] if target is TARGETS[at % 4] else [pytest.mark.full])
    for at in range(len(KINDS))
    for target in TARGETS
]


@pytest.mark.parametrize(("at", "target"), PLACES)
def test_every_kind_is_right_on_every_target(at: int, target: Target) -> None:
    problem, lanes = problem_of(KINDS[at]), target.lanes("f32")
    block = problem.quantised_weights.block if problem.quantised_weights else 0
    ways: list[tuple[Step, ...]] = [
        (*PACKS, Register(min(3, problem.m), 2 * lanes)),
        (Stream("k", block), *PACKS, Register(2, lanes, "rows")),
        (Tile("n", 2 * lanes), Pack("B"), Tile("m", 4), Pack("A"), Register(2, lanes)),
    ]
    check(problem, Schedule(ways[at % len(ways)]), target, at)


def test_threads_share_panels(host: Target) -> None:
    steps = (Parallel("n", 2), *PACKS, Register(2, 2 * host.lanes("f32")))
    check(problem_of(KINDS[1]), Schedule(steps), host, 0)


@pytest.mark.parametrize(
    "steps",
    [
        (Pack("B"), Register(2, 1), Split("k", 32)),
        (Stream("k", 32), Register(1, 32), Sweep("n")),
    ],
    ids=["split", "sweep"],
)
def test_sums_that_are_split_or_swept_are_refused(steps: tuple[Step, ...]) -> None:
    with pytest.raises(ScheduleError, match="drop the steps sweep and split"):
        loop_nest(problem_of(KINDS[0]), Schedule(steps))


def result(problem: Matmul, operands: dict[str, Array], target: Target) -> Array:
    """What a kernel computes."""
    steps = (*PACKS, Register(min(2, problem.m), 2 * target.lanes("f32")))
    lower(problem, Schedule(steps), target).run(operands)
    return operands["C"]


def test_dynamic_i8_is_the_product_of_bytes_with_a_scale_for_each_block(host: Target) -> None:
    problem = problem_of("m=4,n=48,k=96,dtype=f32,b=i8,group=32,a=dynamic_i8")
    operands = make_operands(problem, 5)
    a = operands["A"].astype(np.float64).reshape(4, 3, 32)
    scale = np.abs(a).max(axis=2, keepdims=True) / 127
    rounded = (np.rint(a / scale) * scale).reshape(4, 96)
    weights = problem.quantised_weights
    assert weights is not None
    wide = {name: widened(x, problem.type_of(name)) for name, x in operands.items()}
    expected = rounded @ weights.dequantised(wide)
    found = result(problem, operands, host)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("a", ["", ",a=dynamic_i8"])
def test_a_large_element_costs_precision_in_its_own_block_alone(a: str, host: Target) -> None:
    problem = problem_of(f"m=1,n=48,k=128,dtype=bf16,b=i8,group=32{a}")
    operands = make_operands(problem, 6)
    exact = reference(problem, operands).value
    first = np.abs(result(problem, operands, host) - exact).max()
    operands["A"][0, 0] = 0x4780  # 65536
    operands["B"][0] = 0
    exact = reference(problem, operands).value
    spoiled = np.abs(result(problem, operands, host) - exact).max()
    assert spoiled > 20 * first
    operands["B"][:32] = 0  # what shares its block
    exact = reference(problem, operands).value
    assert np.abs(result(problem, operands, host) - exact).max() <= 2 * first


def test_rows_of_zeros_give_zero(host: Target) -> None:
    problem = problem_of(KINDS[1])
    operands = make_operands(problem, 7)
    operands["A"][2] = 0
    assert (result(problem, operands, host)[2] == 0).all()


def test_bf16_is_rounded_no_more_than_its_block_allows(host: Target) -> None:
    """Sixteen bits hold a bf16 that is at most 128 times smaller than the largest exactly."""
    problem = problem_of("m=3,n=32,k=64,dtype=bf16,b=i8,group=64")
    operands = make_operands(problem, 8)
    integers = np.random.default_rng(0).integers(-127, 128, (3, 64)).astype(np.float32)
    integers[:, 0] = 127
    operands["A"][...] = (integers.view(np.uint32) >> 16).astype(np.uint16)
    operands["scale_b"][...] = 1
    expected = integers.astype(np.int64) @ operands["B"].astype(np.int64)
    found = result(problem, operands, host)
    np.testing.assert_allclose(found, expected, rtol=3e-7 * 64)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_spoils_its_row_alone(value: float, host: Target) -> None:
    problem = problem_of(KINDS[1])
    operands = make_operands(problem, 9)
    expected = reference(problem, operands).value
    operands["A"][3, 150] = value
    found = result(problem, operands, host)
    assert not np.isfinite(found[3]).any()
    others = np.delete(np.arange(problem.m), 3)
    np.testing.assert_allclose(found[others], expected[others], rtol=0, atol=1e-3)


@pytest.mark.parametrize("size", [1e-44, 1e-36, 1e-30, 1e30])
def test_magnitudes_near_the_ends_of_f32_are_right(size: float, host: Target) -> None:
    problem = problem_of("m=2,n=48,k=64,dtype=f32,b=i8,group=32")
    operands = make_operands(problem, 10)
    operands["A"][...] = (operands["A"].astype(np.float64) * size).astype(np.float32)
    expected = reference(problem, operands).value
    found = result(problem, operands, host).astype(np.float64)
    atol = max(1e-5 * np.abs(expected).max(), 1e-32)
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def test_the_tolerance_of_dynamic_i8_sees_a_group_that_is_left_out() -> None:
    problem = problem_of("m=2,n=64,k=4096,dtype=f32,b=i4,group=32,a=dynamic_i8")
    operands = make_operands(problem, 11)
    expected = reference(problem, operands)
    operands["A"][:, -32:] = 0
    without = reference(problem, operands).value
    error, tolerance = compare(problem, without.astype(np.float32), expected)
    assert error > tolerance
