"""Few channels in a group: vectors of whole groups, tap by tap, in the native kernel's tiles."""

import re

import pytest
from iree.compiler import ir

from tests.kernels.mlir.build import schedule
from tests.kernels.mlir.nests import read
from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.kernels.mlir.lowering.apply import Diagnostics, apply_script
from tilewise.kernels.mlir.proof.prove import prove
from tilewise.kernels.mlir.transform.module import with_payload
from tilewise.kernels.native import lower
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import Target

LAYER = "conv2d:n=1,h=6,w=9,ci=24,co=24,kh=2,kw=3,groups=6,dtype=f32"
TILE = ("register rows=2 cols=16 outer=cols",)


def applied(problem: str, *steps: str) -> str:
    """The transformed module as text."""
    parsed = parse_problem(problem)
    with ir.Context() as context, ir.Location.unknown():
        text = with_payload(parsed, emit_script(parsed, schedule(*steps)))
        return str(apply_script(text, Diagnostics(context)))


def test_a_vector_has_whole_groups_and_a_tap_all_vectors_of_a_tile() -> None:
    sums = re.findall(r"= arith.mulf (%\w+), (%\w+) .*: vector<(\d+)xf32>", applied(LAYER, *TILE))
    assert {int(lanes) for *_, lanes in sums} == {16, 8}  # 4 groups, and the 2 that are left
    (first, weight, _), (second, same, _) = sums[:2]
    assert first != second and weight == same


def test_the_tiles_are_those_of_the_native_kernel(host: Target) -> None:
    problem, steps = LAYER.replace("ci=24,co=24", "ci=32,co=32").replace("6,d", "8,d"), TILE
    problem = problem.replace("w=9", "w=8")
    trips = [place.trips for place in read(applied(problem, *steps)).kernels]
    assert trips == [[2, 5, 3]]
    parsed = parse_problem(problem)
    counted = lower(parsed, schedule(*steps), host).counted_run(make_operands(parsed, 0))
    assert counted["micro_kernels"] == 2 * 5 * 3


@pytest.mark.parametrize(
    "problem",
    [
        LAYER.replace("groups", "pad=1,bias,epilogue=relu,groups"),
        LAYER.replace("co=24", "co=18").replace("f32", "bf16"),
        LAYER.replace("co=24", "co=6").replace("groups", "stride=2,pad=1,groups"),
        LAYER.replace("ci=24", "ci=6"),
        LAYER.replace("groups", "pad=1,layout=nchw_fchw,groups"),
    ],
)
def test_every_kind_of_group_proves(problem: str) -> None:
    parsed = parse_problem(problem)
    cols = 15 if "co=18" in problem else 16  # whole groups
    proof = prove(parsed, schedule(f"register rows=2 cols={cols} outer=rows"))
    assert proof.ok, proof.message


@pytest.mark.parametrize(("groups", "cols", "blocks"), [(16, 12, [12, 12, 8]), (64, 48, [32] * 8)])
def test_blocks_whose_groups_do_not_divide_all_prove(
    groups: int, cols: int, blocks: list[int]
) -> None:
    """Few are written out one by one; of many, each has fewer columns."""
    channels = sum(blocks) // groups
    problem = f"conv2d:n=1,h=3,w=3,ci={groups},co={channels * groups},kh=2,kw=2,groups={groups}"
    steps = f"register rows=2 cols={cols} outer=rows"
    proof = prove(parse_problem(f"{problem},dtype=f32"), schedule(steps))
    assert proof.ok, proof.message
    if len(set(blocks)) > 1:
        text = applied(f"{problem},dtype=f32", steps)
        assert set(re.findall(r"= arith.mulf .*: vector<(\d+)xf32>", text)) == {"12", "8"}


@pytest.mark.parametrize("size", [36, 48])
def test_blocks_that_are_larger_than_the_part_of_a_thread_prove(size: int) -> None:
    """A part of 24 channels is one block, and stays whole until the registers cut it."""
    problem = parse_problem("conv2d:n=1,h=1,w=6,ci=64,co=48,kh=1,kw=2,groups=16,dtype=f32")
    steps = (
        "parallel dim=co parts=2",
        f"tile dim=co size={size}",
        "register rows=5 cols=12 outer=rows",
    )
    proof = prove(problem, schedule(*steps))
    assert proof.ok, proof.message


@pytest.mark.parametrize("channels", [16, 32])
def test_lines_that_end_with_a_tile_of_padding_alone_prove(channels: int) -> None:
    """The twelfth output of a line is the last that sees the image: the other tile has nothing."""
    problem = f"conv2d:n=1,h=5,w=11,ci={channels},co={channels},kh=2,kw=1,pad=1,groups=16"
    parsed = parse_problem(f"{problem},dtype=f32,layout=nchw_fchw")
    proof = prove(parsed, schedule("register rows=1 cols=12 outer=cols"))
    assert proof.ok, proof.message


PADDED = "conv2d:n=1,h=9,w=5,ci=6,co=3,kh=3,kw=3,pad=1,groups=3,dtype=f32"
STRIDED = "conv2d:n=1,h=3,w=2,ci=6,co=3,kh=3,kw=1,stride=2,dilation=2,pad=2,groups=3,dtype=i8"


@pytest.mark.parametrize(
    ("problem", "steps"),
    [
        (PADDED, ("tile dim=oh size=6", "register rows=2 cols=16 outer=cols")),
        (STRIDED, ("register rows=2 cols=16 outer=cols", "jam dim=oh factor=2")),
    ],
)
def test_each_pane_spreads_pixels_of_its_own(problem: str, steps: tuple[str, ...]) -> None:
    """Fused for the first pane first, they would be those of the second as well."""
    proof = prove(parse_problem(problem), schedule(*steps))
    assert proof.ok, proof.message


@pytest.mark.parametrize(
    ("problem", "steps"),
    [
        ("h=5,w=1,ci=3,co=15,kh=1,kw=1,stride=3,pad=1,groups=3,dtype=f64",
         ("register rows=1 cols=15 outer=rows", "jam dim=oh factor=3")),
        ("h=13,w=3,ci=4,co=4,kh=3,kw=1,stride=2,pad=1,groups=4,layout=nchw_fchw,dtype=bf16",
         ("tile dim=oh size=2", "register rows=2 cols=16 outer=rows")),
        ("h=5,w=32,ci=2,co=2,kh=1,kw=1,pad=4,groups=2,layout=nchw_fchw,dtype=f32",
         ("tile dim=oh size=2", "register rows=2 cols=16 outer=cols")),
    ],
)  # fmt: skip
def test_filters_no_wider_than_the_padding_prove(problem: str, steps: tuple[str, ...]) -> None:
    """Parts of the image may be zeros alone, for all blocks of a loop or for some, or one tap."""
    proof = prove(parse_problem(f"conv2d:n=1,{problem}"), schedule(*steps))
    assert proof.ok, proof.message


@pytest.mark.parametrize(
    ("problem", "steps"),
    [
        ("h=7,w=9,ci=2,co=4,kh=3,kw=3,pad=1,groups=2,dtype=f32",
         ("tile dim=oh size=2", "register rows=3 cols=4 outer=cols")),
        ("h=5,w=7,ci=6,co=6,kh=3,kw=3,pad=2,groups=2,dtype=bf16",
         ("tile dim=oh size=3", "register rows=2 cols=6 outer=rows", "jam dim=oh factor=3")),
        ("h=13,w=19,ci=4,co=4,kh=3,kw=3,stride=2,pad=1,groups=4,layout=nchw_fchw,dtype=f32",
         ("tile dim=oh size=2", "register rows=2 cols=16 outer=rows")),
    ],
)  # fmt: skip
def test_loops_over_blocks_of_padded_lines_prove(problem: str, steps: tuple[str, ...]) -> None:
    """Upstream asks of a block at an unknown place whether it is of padding alone."""
    proof = prove(parse_problem(f"conv2d:n=1,{problem}"), schedule(*steps))
    assert proof.ok, proof.message


@pytest.mark.parametrize(
    ("groups", "rows", "loops", "taps"), [(4, 1, 0, 18), (2, 2, 1, 12), (2, 4, 2, 4)]
)
def test_taps_of_planes_are_loops_where_their_products_are_many(
    groups: int, rows: int, loops: int, taps: int
) -> None:
    """Weights of many taps in code without a loop would lie on the stack, as whole vectors."""
    problem = f"conv2d:n=1,h=12,w=16,ci=8,co=8,kh=3,kw=3,pad=1,layout=nchw_fchw,groups={groups}"
    tile = f"register rows={rows} cols=16 outer=cols"
    text = applied(f"{problem},dtype=f32", tile)
    (kernel,) = read(text).kernels
    assert kernel.trips == [groups, 12 // rows, *[3] * loops]
    products = re.findall(r"arith.mulf .*: vector<16xf32>", text)
    assert len(products) == rows * 8 // groups * taps
    proof = prove(parse_problem(f"{problem},dtype=f32"), schedule(tile))
    assert proof.ok, proof.message
