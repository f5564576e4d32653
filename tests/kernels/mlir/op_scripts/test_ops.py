"""Scripts on ops of modules: their normal form, refusals, and proofs of random ops."""

import random
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby
from math import prod

import pytest

from tests.kernels.mlir.frontend.test_generics import (
    Generic,
    random_contraction,
    random_convolution,
)
from tests.kernels.mlir.nests import products, trips_around
from tests.kernels.mlir.nests import read as read_loops
from tilewise.kernels.errors import PlaceError, ScheduleError, UnsupportedError
from tilewise.kernels.mlir.frontend.graph import LoneOp
from tilewise.kernels.mlir.frontend.read import read_op
from tilewise.kernels.mlir.op_scripts.normal_form import normal_form, schedulable
from tilewise.kernels.mlir.op_scripts.prove import emit_for_op, prove_lone, with_op
from tilewise.kernels.mlir.proof.proof import ScriptProof
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule, Split, Stream, Tile, loop_nest
from tilewise.kernels.target import Target
from tilewise.search.space.space import Space

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")


SIZES = (1, 2, 3, 4, 5, 7, 8, 13, 16, 24, 33)


def contraction(rng: random.Random) -> Generic:
    """A contraction in any order, with loops long enough for vectors."""
    case = random_contraction(rng)
    while case.trap != "none":
        case = random_contraction(rng)
    return replace(case, extents=tuple(rng.choice(SIZES) for _ in case.extents))


def convolution(rng: random.Random) -> Generic:
    """A convolution of one group or of groups with many channels, in any order."""
    case = random_convolution(rng)
    while case.trap != "none" or _strides(case) > 1:
        case = random_convolution(rng)
    n, oh, _, _, _, kh, kw, _ = case.extents
    groups = rng.choice((1, 1, 2))
    inputs, outputs = (9, 24) if groups > 1 else (rng.choice((1, 3, 16)), rng.choice((1, 4, 24)))
    return replace(case, extents=(n, oh, rng.choice((1, 5, 9)), groups, outputs, kh, kw, inputs))


def _strides(case: Generic) -> int:
    """How many different strides the windows have."""
    return len({step for axis in case.maps[0] if len(axis) > 1 for dim, step in axis if dim < 3})


def read(case: Generic) -> LoneOp:
    """The op by itself."""
    return read_op(case.text("f").encode())


def drawn(lone: LoneOp, target: Target, rng: random.Random) -> Schedule:
    """A random legal schedule of an op's problem, without what has no script on such an op."""
    space = Space(schedulable(lone), target, has_scripts=True)
    is_product = not lone.nest.has_windows
    while True:
        point = space.draw(rng)
        if space.legal_hash(point) is None:
            continue
        schedule = space.schedule(point)
        nest = loop_nest(space.problem, schedule)
        if nest.algorithm is None and (is_product or nest.compute.lanes == 1):
            return schedule


def generic(
    extents: str, maps: tuple[str, str, str], shapes: tuple[str, str, str], body: str = "%x, %y"
) -> str:
    """A function with one f32 op that starts from its third argument.

    Args:
        extents: the loops, as `i, j, k`.
        maps: the axes of both inputs and of the result, as `i, k`.
        shapes: of them, as `4x5`.
        body: the factors in the order in which they are multiplied.
    """
    a, b, c = (f"tensor<{shape}xf32>" for shape in shapes)
    written = [name.strip() for name in maps[2].split(",")]
    kinds = ", ".join(
        '"parallel"' if name.strip() in written else '"reduction"' for name in extents.split(",")
    )
    accesses = ", ".join(f"affine_map<({extents}) -> ({one})>" for one in maps)
    return f"""
func.func @f(%a: {a}, %b: {b}, %c: {c}) -> {c} {{
  %r = linalg.generic {{indexing_maps = [{accesses}], iterator_types = [{kinds}]}}
      ins(%a, %b : {a}, {b}) outs(%c : {c}) {{
  ^bb0(%x: f32, %y: f32, %s: f32):
    %p = arith.mulf {body} : f32
    %t = arith.addf %s, %p : f32
    linalg.yield %t : f32
  }} -> {c}
  return %r : {c}
}}
"""


def transformed(lone: LoneOp, schedule: Schedule) -> str:
    """The module that the script of an op makes of its payload."""
    from iree.compiler import ir

    from tilewise.kernels.mlir.lowering.apply import Diagnostics, apply_to

    script = emit_for_op(normal_form(lone, schedule), schedule)
    with ir.Context() as context, ir.Location.unknown():
        return str(apply_to(lone.payload, script, Diagnostics(context)))


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("draw", "count"), [(contraction, 16), (convolution, 10)])
def test_scripts_of_random_ops_prove(host, draw, count) -> None:
    def proven(seed: int) -> tuple[Generic, Schedule, ScriptProof]:
        rng = random.Random(seed)
        case = draw(rng)
        lone = read(case)
        schedule = drawn(lone, host, rng)
        return case, schedule, prove_lone(lone, schedule, seed=seed)

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(proven, range(count)))
    for case, schedule, proof in found:
        assert proof.ok, (case, str(schedule), proof.failure, proof.message)
    packed = ["transform.structured.pack %" in proof.script for _, _, proof in found]
    assert any(packed)


BLOCKS = Schedule((Tile("n", 32), Stream("k", 8), Pack("B"), Tile("m", 12), Register(4, 16)))
TRANSPOSED = generic("k, j, i", ("k, i", "j, k", "i, j"), ("24x24", "64x24", "24x64"))


def test_the_loops_are_those_of_the_schedule() -> None:
    """The order of the op's loops does not matter, nor does that of its operands."""
    plain = generic("j, k, i", ("i, k", "k, j", "i, j"), ("24x24", "24x64", "24x64"))
    swapped = generic("i, j, k", ("k, j", "i, k", "i, j"), ("24x64", "24x24", "24x64"))
    last = generic("i, j, k", ("i, k", "k, j", "j, i"), ("24x24", "24x64", "64x24"))
    for module in (plain, swapped, TRANSPOSED, last):
        lone = read_op(module.encode())
        problem = schedulable(lone)
        schedule = BLOCKS
        if problem.to_json()["m"] == 64:  # the result is turned: rows are its columns
            schedule = Schedule((Stream("k", 8), Pack("B"), Tile("m", 16), Register(4, 8)))
        nest = loop_nest(problem, schedule)
        text = transformed(lone, schedule)
        assert products(text) == problem.flops // 2
        loops = [trips for one in read_loops(text).kernels for trips in one.trips]
        assert loops == [*trips_around(nest, list(nest.visit())[-1]), 8]


HEADS = generic("h, i, j, d", ("i, h, d", "j, h, d", "h, i, j"), ("40x6x33", "50x6x33", "6x40x50"))
"""Heads in the middle, as attention has them."""


def packed_ahead(lone: LoneOp, schedule: Schedule) -> bool:
    return bool(normal_form(lone, schedule).packing.sizes)


@pytest.mark.parametrize("tiles", [(), (Tile("m", 16),)])
def test_columns_that_are_no_neighbours_come_from_panels_head_by_head(tiles) -> None:
    """Q is read in place, the scores are written there, and K's panels are those of a head."""
    lone = read_op(HEADS.encode())
    schedule = Schedule((Tile("batch", 1), *tiles, Register(8, 16)))
    assert not packed_ahead(lone, schedule)
    proof = prove_lone(lone, schedule)
    assert proof.ok, proof.message
    fills = read_loops(transformed(lone, schedule)).fills
    assert [place.trips[0] for place in fills.values()] == [6] * len(fills)
    assert sum(prod(shape) for shape in fills) == 50 * 33


def test_sums_around_panels_are_outside_of_them() -> None:
    """A schedule for one loop over the reduction packs B for each step of the other one."""
    module = generic("i, j, a, d", ("i, a, d", "j, a, d", "i, j"), ("12x3x17", "32x3x17", "12x32"))
    lone = read_op(module.encode())
    schedule = Schedule((Register(6, 16),))
    proof = prove_lone(lone, schedule)
    assert proof.ok, proof.message
    (place,) = read_loops(transformed(lone, schedule)).fills.values()
    assert place.trips[0] == 3


def test_rows_in_the_same_lines_of_a_cache_are_packed() -> None:
    """Rows that are some ways of the cache apart drive each other out."""
    for heads, is_packed in ((1023, False), (1024, True)):
        shapes = f"24x{heads}x2", f"{heads}x2x16", f"{heads}x24x16"
        maps = "i, h, d", "h, d, j", "h, i, j"
        lone = read_op(generic("h, i, j, d", maps, shapes).encode())
        assert packed_ahead(lone, Schedule((Tile("batch", 1), Register(12, 16)))) == is_packed
        assert not packed_ahead(lone, Schedule((Tile("batch", 1), Register(2, 16))))


def test_a_row_is_multiplied_by_all_columns_before_the_next_one() -> None:
    """Whatever factor comes first: else all rows' elements would be held beside the sums."""
    module = generic("j, i, k", ("k, j", "i, k", "i, j"), ("6x48", "18x6", "18x48"))
    lone = read_op(module.encode())
    text = transformed(lone, Schedule((Register(9, 48),)))
    rows = re.findall(r"arith.mulf (?:%\w+), (%\w+) fastmath<contract> : vector<16xf32>", text)
    assert len(rows) == 9 * 3
    assert [len(list(run)) for _, run in groupby(rows)] == [3] * 9


def test_a_convolution_of_any_order_takes_schedules_with_pixels_first() -> None:
    conv = """
func.func @f(%x: tensor<1x8x9x9xf32>, %w: tensor<16x8x3x3xf32>, %c: tensor<1x16x7x7xf32>)
    -> tensor<1x16x7x7xf32> {
  %r = linalg.conv_2d_nchw_fchw ins(%x, %w : tensor<1x8x9x9xf32>, tensor<16x8x3x3xf32>)
      outs(%c : tensor<1x16x7x7xf32>) -> tensor<1x16x7x7xf32>
  return %r : tensor<1x16x7x7xf32>
}
"""
    lone = read_op(conv.encode())
    assert "layout=nchw" in lone.found.problem
    assert "layout" not in schedulable(lone).canonical
    proof = prove_lone(lone, Schedule((Tile("n", 1), Pack("B"), Register(7, 16))))
    assert proof.ok, proof.message
    with pytest.raises(ScheduleError, match="only a matmul's reduction is split"):
        normal_form(lone, Schedule((Register(1, 1), Split("ci", 8))))


def depthwise(name: str, image: str, filters: str, result: str) -> LoneOp:
    """A named op that starts from zeros."""
    x, w, c = (f"tensor<{shape}xf32>" for shape in (image, filters, result))
    return read_op(
        f"""
func.func @f(%x: {x}, %w: {w}) -> {c} {{
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : {c}
  %s = linalg.fill ins(%z : f32) outs(%e : {c}) -> {c}
  %r = linalg.{name} {{strides = dense<2> : tensor<2xi64>}} ins(%x, %w : {x}, {w})
      outs(%s : {c}) -> {c}
  return %r : {c}
}}
""".encode()
    )


def test_a_depthwise_op_in_the_order_of_its_problem_proves() -> None:
    lone = depthwise("depthwise_conv_2d_nhwc_hwc", "1x9x8x32", "3x3x32", "1x4x3x32")
    assert schedulable(lone).canonical.endswith("stride=2,groups=32,dtype=f32")
    schedule = Schedule((Register(3, 16),))
    proof = prove_lone(lone, schedule)
    assert proof.ok, proof.message
    whole = with_op(lone, proof.script)
    assert whole.count("linalg.depthwise_conv_2d_nhwc_hwc ") == 1
    assert whole.index("func.func @kernel") < whole.index("@__transform_main")


SPELLED = """
func.func @f(%x: tensor<1x9x8x32xf32>, %w: tensor<3x3x32xf32>) -> tensor<1x7x6x32xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x7x6x32xf32>
  %s = linalg.fill ins(%z : f32) outs(%e : tensor<1x7x6x32xf32>) -> tensor<1x7x6x32xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(h, w, c, y, x) -> (0, h + y, w + x, c)>,
      affine_map<(h, w, c, y, x) -> (y, x, c)>, affine_map<(h, w, c, y, x) -> (0, h, w, c)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %w : tensor<1x9x8x32xf32>, tensor<3x3x32xf32>) outs(%s : tensor<1x7x6x32xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %p = arith.mulf %a, %b : f32
    %t = arith.addf %c, %p : f32
    linalg.yield %t : f32
  } -> tensor<1x7x6x32xf32>
  return %r : tensor<1x7x6x32xf32>
}"""


def test_groups_of_few_channels_in_another_order_are_refused() -> None:
    lone = depthwise("depthwise_conv_2d_nchw_chw", "1x24x9x9", "24x3x3", "1x24x4x4")
    with pytest.raises(UnsupportedError) as refused:
        schedulable(lone)
    told = str(refused.value)
    assert "no script for this op with so few channels in a group (1); use tilewise script" in told
    with pytest.raises(UnsupportedError, match=r"use linalg\.depthwise_conv_2d_nhwc_hwc, or"):
        schedulable(read_op(SPELLED.encode()))


def test_a_wrong_result_is_no_proof() -> None:
    """The reference is that of the problem, on operands that lie as the op's do."""
    lone = read_op(TRANSPOSED.encode())
    keys = {**parse_problem(lone.found.problem).to_json(), "init": "zero"}
    zeros = replace(lone.found, problem=parse_problem(keys).canonical)
    half = replace(lone, found=zeros)
    assert prove_lone(half, BLOCKS).failure == "wrong"


TWO = TRANSPOSED + TRANSPOSED.replace("@f", "@g")


@pytest.mark.parametrize(("place", "message"), [
    (None, "2 ops are problems, at @f 3:8, @g 14:8; give one of them"),
    ("3", "no op has the number 3; the module has 2"),
    ("@h", "no problem is at this place; give one of @f 3:8, @g 14:8"),
])  # fmt: skip
def test_a_place_names_one_op(place: str | None, message: str) -> None:
    with pytest.raises(PlaceError, match=message):
        read_op(TWO.encode(), place)


def test_an_op_is_found_by_number_and_by_place() -> None:
    assert read_op(TWO.encode(), "2").found.where.startswith("@g ")
    assert read_op(TWO.encode(), "@g 14:8").found.where.startswith("@g ")
    assert read_op(TWO.encode(), "@f 3:8 linalg.generic").found.where.startswith("@f ")
