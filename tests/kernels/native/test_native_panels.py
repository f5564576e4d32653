"""Panels of B: packed in passing, and ahead where weights are constant."""

from itertools import product

import numpy as np
import pytest
from llvmlite import ir

from tests.cases import some
from tests.kernels.native_case import TARGETS, check
from tilewise.kernels.arithmetic import arithmetic_of, must_pack
from tilewise.kernels.native import lower
from tilewise.kernels.native.microkernels.outer_product_code import OuterProductSpec
from tilewise.kernels.native.plan import plan
from tilewise.kernels.native.strides import shape_of_stage
from tilewise.kernels.nest import Fetched
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.oracle.reference import compare, reference
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import (
    Pack,
    Prefetch,
    Register,
    Schedule,
    Step,
    Stream,
    Tile,
    Unroll,
    loop_nest,
)
from tilewise.kernels.target import Target


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("matmul:m=13,n=150,k=70,dtype=f32", (Tile("n", 128), Stream("k", 40), Pack("B"))),
        ("matmul:m=13,n=150,k=70,dtype=i32", (Pack("B"), Tile("m", 8))),
        (
            "conv2d:n=2,h=6,w=9,ci=10,co=70,kh=3,kw=2,dtype=f64",
            (Pack("B"), Tile("n", 1), Tile("oh", 2)),
        ),
    ],
)
def test_the_first_tile_of_rows_leaves_every_panel_packed(
    text: str, steps: tuple[Step, ...], host: Target
) -> None:
    problem = parse_problem(text)
    lanes = host.lanes(problem.element.name)
    schedule = Schedule((*steps, Register(4, 2 * lanes), Unroll(3)))
    executable = lower(problem, schedule, host)
    operands = make_operands(problem, 3)
    sizes = executable.scratch_bytes
    scratch = {name: np.full(size + 64, 0xA7, np.uint8) for name, size in sizes.items()}
    aligned = {name: raw[-raw.ctypes.data % 64 :][: sizes[name]] for name, raw in scratch.items()}
    executable.bind(operands, aligned)()
    nest = loop_nest(problem, schedule)
    panels, taps, _, cols = shape_of_stage(nest, "B")
    rows = operands["B"].reshape(taps, -1, operands["B"].shape[-1])
    depth = nest.depth
    start = (rows.shape[1] - 1) // depth * depth  # of the last chunk, which is what is left
    first = (rows.shape[2] - 1) // (panels * cols) * panels * cols
    block = rows[:, start:, first:]
    padded = np.zeros((taps, block.shape[1], -(-block.shape[2] // cols) * cols), rows.dtype)
    padded[:, :, : block.shape[2]] = block
    packed = padded.reshape(taps, block.shape[1], -1, cols).transpose(2, 0, 1, 3)
    found = aligned["B"].view(rows.dtype)[: packed.size].reshape(packed.shape)
    assert np.array_equal(found, packed)


@pytest.mark.parametrize("dtype", ["bf16", "i8"])
def test_channels_of_a_group_that_cut_words_are_packed(dtype: str, host: Target) -> None:
    text = f"conv2d:n=1,h=1,w=2,ci=6,co=64,kh=1,kw=1,groups=2,dtype={dtype}"
    problem = parse_problem(text)
    assert "A" in must_pack(problem, arithmetic_of(problem, host))
    tile = Register(2, host.lanes(problem.element.name))
    check(problem, Schedule((Tile("g", 1), Pack("B"), Tile("n", 1), Pack("A"), tile)), host, 0)


def test_constant_weights_are_packed_when_bound_and_not_when_run(host: Target) -> None:
    problem = parse_problem("matmul:m=20,n=70,k=33,dtype=f32,weights=constant")
    operands = make_operands(problem, 0)
    expected = reference(problem, operands)
    schedule = Schedule((Tile("n", 32), Stream("k", 17), Pack("B"), Register(4, 32)))
    call = lower(problem, schedule, host).bind(operands)
    operands["B"][...] = np.nan
    call()
    error, tolerance = compare(problem, operands["C"], expected)
    assert error <= tolerance


@pytest.mark.parametrize(
    ("text", "lead"),
    [
        ("matmul:batch=2,m=17,n=19,k=23,dtype=f32,weights=constant", "batch"),
        ("matmul:batch=3,m=5,n=35,k=23,dtype=bf16,transpose_b,weights=constant", "batch"),
        ("matmul:batch=2,m=5,n=35,k=24,dtype=i8,weights=constant", "batch"),
        ("conv2d:n=2,h=9,w=9,ci=8,co=38,kh=3,kw=3,groups=2,dtype=bf16,weights=constant", "g"),
    ],
)
@pytest.mark.parametrize("depth", [0, 4])
def test_constant_weights_of_batches_and_groups(
    text: str, lead: str, depth: int, host: Target
) -> None:
    problem = parse_problem(text)
    stream = "k" if lead == "batch" else "ci"
    steps = [Tile(lead, 1), *([Stream(stream, depth)] if depth else []), Pack("B")]
    image = [Tile("n", 1)] if lead == "g" else []
    check(problem, Schedule((*steps, *image, Pack("A"), Register(3, 16))), host, 8)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("matmul:m=19,n=70,k=37,dtype=f32", (Stream("k", 16), Pack("B"), Prefetch("B"))),
        ("matmul:m=16,n=50,k=64,dtype=bf16", (Pack("B"), Prefetch("B"), Pack("A"))),
        ("matmul:m=3,n=33,k=30,dtype=i8,transpose_b", (Pack("B"), Prefetch("B"), Pack("A"))),
        (
            "conv2d:n=2,h=6,w=9,ci=10,co=38,kh=3,kw=2,dtype=f32",
            (Tile("co", 32), Pack("B"), Prefetch("B"), Tile("n", 1)),
        ),
    ],
)
@pytest.mark.parametrize(("target", "seed"), some(product(TARGETS, [2, 3]), of=3))
def test_panels_that_were_packed_ahead_are_fetched_ahead(
    text: str, steps: tuple[Step, ...], target: Target, seed: int
) -> None:
    """Beyond the last panel too, where nothing may be read: a prefetch reads nothing."""
    problem = parse_problem(f"{text},weights=constant")
    needs_a = {"A"} <= must_pack(problem, arithmetic_of(problem, target))
    steps = (*steps, *([Pack("A")] if needs_a and Pack("A") not in steps else []))
    tile = (Register(4, 32), Unroll(2))
    check(problem, Schedule((*steps, *tile)), target, seed)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("matmul:m=19,n=70,k=37,dtype=f32", (Stream("k", 16), Tile("n", 32), Prefetch("B"))),
        ("matmul:m=19,n=70,k=37,dtype=f32,transpose_a", (Tile("n", 64), Prefetch("B"))),
        ("matmul:m=9,n=50,k=40,dtype=i32", (Tile("n", 32), Prefetch("B"), Tile("m", 8))),
        (
            "matmul:m=9,n=50,k=40,dtype=f64",
            (Tile("n", 32), Prefetch("B"), Pack("A")),
        ),
        (
            "matmul:batch=2,m=9,n=70,k=40,dtype=f32,bias,epilogue=relu",
            (Tile("batch", 1), Tile("n", 32), Stream("k", 12), Prefetch("B")),
        ),
        (
            "conv2d:n=2,h=6,w=9,ci=10,co=38,kh=3,kw=2,dtype=f32",
            (Tile("co", 32), Prefetch("B"), Tile("n", 1)),
        ),
    ],
)
@pytest.mark.parametrize("target", TARGETS[:2])
def test_a_block_in_place_is_fetched_ahead(
    text: str, steps: tuple[Step, ...], target: Target
) -> None:
    problem = parse_problem(text)
    for outer in ("cols", "rows"):
        schedule = Schedule((*steps, Register(4, 32, outer), Unroll(3)))
        assert "next_block" in plan(problem, schedule, target).source.text
        check(problem, schedule, target, 5)


@pytest.mark.parametrize("weights", ["constant", "variable"])
def test_a_prefetch_is_of_panels_or_of_the_block_that_is_packed_next(
    weights: str, host: Target
) -> None:
    problem = parse_problem(f"matmul:m=16,n=256,k=64,dtype=f32,weights={weights}")
    steps = (Tile("n", 64), Pack("B"), Prefetch("B"), Register(4, 32))
    planned = plan(problem, Schedule(steps), host)
    assert isinstance(planned.spec, OuterProductSpec)
    assert planned.spec.fetch is not None
    assert (planned.spec.fetch.what is Fetched.NEXT_PANEL) == (weights == "constant")
    assert (planned.spec.prefetched > 0) == (weights == "variable")
    assert ("next_block" in planned.source.text) == (weights == "variable")
    full = planned.kernel.pieces(planned.use)["full"]
    assert str(full.emit(ir.Module()).module).count("llvm.prefetch") > 0


@pytest.mark.parametrize(
    ("target", "size", "kind"),
    some(
        product(
            TARGETS[:2],
            [(64, 24), (150, 37), (65, 3)],
            [("bf16", 1), ("bf16", 2), ("bf16", 4), ("i8", 3), ("i8", 4), ("f16", 4)],
        ),
        of=5,
    ),
)
def test_words_of_several_rows_are_joined_whole_or_vector_by_vector(
    kind: tuple[str, int], size: tuple[int, int], target: Target
) -> None:
    """Whole panels, cut ones, and rows that are left of the last word."""
    (dtype, vectors), (n, k) = kind, size
    problem = parse_problem(f"matmul:m=5,n={n},k={k},dtype={dtype}")
    tile = Register(4, vectors * target.lanes(dtype))
    check(problem, Schedule((Pack("B"), Pack("A"), tile)), target, n + k)
