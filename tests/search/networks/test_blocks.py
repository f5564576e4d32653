"""Channels in blocks as layouts: their copies, their schedules, and what a plan computes."""

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest

from examples.models.graph import Graph, Value
from tests.search.networks.running.drawn import Drawn, apart, computed, program_of, timed
from tests.search.networks.running.test_starts import dense
from tests.search.networks.standalone.written import run_alone, written
from tilewise.kernels.channel_blocks import Blocks
from tilewise.kernels.mlir.frontend.program import Program
from tilewise.kernels.mlir.frontend.weights import read_program
from tilewise.kernels.native.conversion import converter
from tilewise.kernels.native.plan import plan as lowered
from tilewise.kernels.problem import Conv2d, parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule, Step, Stream, Tile, Winograd
from tilewise.kernels.target import Target, detect
from tilewise.search.networks.copies import conversion_of
from tilewise.search.networks.costing.blocked import in_blocks as schedules_in_blocks
from tilewise.search.networks.costing.retimed import Retimed
from tilewise.search.networks.costs import Timed
from tilewise.search.networks.layouts import Layout, in_blocks, ordered, plain
from tilewise.search.networks.plan import Plan
from tilewise.search.networks.planning import Named, planned
from tilewise.search.networks.running.blocks import laid_in_blocks
from tilewise.search.networks.running.network import Network

SHAPE = (2, 3, 5, 64)
LAYOUTS = (
    plain(SHAPE),
    ordered((0, 3, 1, 2), SHAPE),
    in_blocks(range(4), SHAPE, 16),
    in_blocks(range(4), SHAPE, 32),
)


def stored(values: np.ndarray, layout: Layout) -> np.ndarray:
    """A tensor as it lies."""
    if not layout.block:
        return np.ascontiguousarray(values.transpose(layout.order))
    n, h, w, c = values.shape
    apart = values.reshape(n, h, w, c // layout.block, layout.block)
    return np.ascontiguousarray(apart.transpose(0, 3, 1, 2, 4))


@pytest.mark.parametrize("made", LAYOUTS, ids=lambda one: one.name)
@pytest.mark.parametrize("wanted", LAYOUTS, ids=lambda one: one.name)
def test_copies_between_blocks_and_orders(made: Layout, wanted: Layout) -> None:
    found = conversion_of(SHAPE, "f32", made, wanted)
    assert found is not None
    values = np.random.default_rng(0).integers(0, 1 << 30, SHAPE).astype(found[1])
    target = np.zeros(found[0].target_shape, found[1])
    converter(found[0])(stored(values, made), target)
    assert target.tobytes() == stored(values, wanted).tobytes()


def test_a_halo_around_blocks() -> None:
    halo = Layout((0, 3, 1, 2, 3), 1, (1, 2), 16)
    assert halo.name == "blocks of 16 halo 1"
    found = conversion_of(SHAPE, "f32", LAYOUTS[0], halo)
    assert found is not None
    values = np.random.default_rng(1).integers(0, 1 << 30, SHAPE).astype(found[1])
    target = np.zeros(found[0].target_shape, found[1])
    converter(found[0])(values, target)
    around = np.pad(stored(values, LAYOUTS[2]), ((0, 0), (0, 0), (1, 1), (1, 1), (0, 0)))
    assert target.tobytes() == around.tobytes()


def test_blocks_of_two_axes_have_no_copy() -> None:
    other = in_blocks((0, 2, 3, 1), (1, 32, 4, 64), 16)
    mine = in_blocks((0, 1, 2, 3), (1, 32, 4, 64), 16)
    assert conversion_of((1, 32, 4, 64), "f32", mine, other) is None


PLAIN_SCHEDULES: dict[str, tuple[tuple[Step, ...], str]] = {
    "kh=1,kw=1": ((Tile("co", 96), Stream("ci", 80), Pack("B"), Tile("n", 1), Register(7, 48)),
                  "tile dim=co size=96, stream dim=ci depth=64, pack operand=B, "
                  "tile dim=n size=1, register rows=7 cols=32 outer=cols"),
    "kh=3,kw=3,pad=1": ((Pack("B"), Tile("n", 1), Pack("A"), Register(7, 32)),
                        "stream dim=ci depth=64, pack operand=B, tile dim=n size=1, "
                        "pack operand=A, register rows=7 cols=32 outer=cols"),
}  # fmt: skip


@pytest.mark.parametrize("keys", PLAIN_SCHEDULES)
def test_schedules_are_changed_where_loops_cut_a_block(keys: str) -> None:
    target = Target(
        "znver4", features=frozenset({"avx512f", "fma"}), vector_bytes=64, vector_registers=32
    )
    problem = parse_problem(f"conv2d:n=1,h=14,w=14,ci=192,co=128,{keys},dtype=f32,weights=constant")
    assert isinstance(problem, Conv2d)
    steps, told = PLAIN_SCHEDULES[keys]
    first, *_ = schedules_in_blocks(problem, [Schedule(steps)], Blocks(64, 64), target)
    assert ", ".join(map(str, first.steps)) == told
    for one in schedules_in_blocks(problem, [Schedule(steps)], Blocks(64, 64), target):
        lowered(problem, one, target, blocks=Blocks(64, 64))


class DrawnInBlocks(Drawn):
    """Costs at random that are lower where image and result are in blocks."""

    def in_blocks(self, problem: str, blocks: Blocks) -> tuple[Timed, ...]:
        parsed = parse_problem(problem)
        assert isinstance(parsed, Conv2d)
        if not (blocks.a and blocks.c):
            return ()
        drawn = [Schedule.from_json(list(one.steps)) for one in self.schedules(problem)]
        minimal = Schedule((Winograd(4), Pack("B"), Pack("A"), Register(6, 32)))
        drawn += [Schedule((Pack("B"), Tile("n", 1), Register(3, 32))), minimal]
        fitting = schedules_in_blocks(parsed, drawn, blocks, self._target)
        return tuple(timed(one, self._random.uniform(0.1, 0.2)) for one in fitting)


@pytest.fixture(scope="module")
def blocky() -> tuple[Graph, Program]:
    """Layers of one pixel and of nine, strides, a residual, sums and a relu that no layer takes."""
    graph = Graph("blocky", Value("given", (1, 9, 7, 32)))
    x = graph.conv(graph.given, 64, 1)
    y = graph.add(graph.conv(graph.conv(x, 64, 3), 64, 1, relu=False), x, relu=True)
    z = graph.add(graph.conv(y, 64, 1), graph.conv(y, 64, 1), relu=True)
    graph.linear(graph.mean_pool(graph.add(z, x)), 12)
    return graph, program_of(graph, "torch")


def planned_in_blocks(program: Program, seed: int) -> Plan:
    target = detect()
    costs = DrawnInBlocks(target, Random(seed), 0.1)
    return planned(program.outline.graph, costs, Named("blocky", target.canonical, "hot"))


def test_a_plan_in_blocks_computes_its_model(blocky: tuple[Graph, Program], tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the extra `peers` installs torch, which computes it")
    from examples.models.pytorch import reference

    graph, program = blocky
    plan = planned_in_blocks(program, 0)
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    names = [use.layout.name for node in plan.nodes for use in (*node.reads, *node.makes)]
    assert sum("blocks of" in name for name in names) > 8, names
    assert any("blocks of" in one.layout.name for one in plan.conversions)
    argument = graph.argument(3)
    network = Network(plan, program)
    found = computed(network, graph, "torch", argument)
    assert apart(found, reference(graph, argument)) < 1e-5
    given = np.ascontiguousarray(argument.transpose(0, 3, 1, 2))
    assert np.array_equal(run_alone(written(network, tmp_path), given), found)


def test_sums_start_from_a_constant_in_blocks() -> None:
    random = np.random.default_rng(3)
    weights, start, image = (
        random.standard_normal(shape).astype(np.float32)
        for shape in ((1, 1, 64, 64), (1, 5, 7, 64), (1, 5, 7, 64))
    )
    module = f"""
func.func @main(%x: tensor<1x5x7x64xf32>) -> tensor<1x5x7x64xf32> {{
  %w = arith.constant {dense(weights)}
  %c = arith.constant {dense(start)}
  %y = linalg.conv_2d_nhwc_hwcf ins(%x, %w : tensor<1x5x7x64xf32>, tensor<1x1x64x64xf32>)
                                outs(%c : tensor<1x5x7x64xf32>) -> tensor<1x5x7x64xf32>
  return %y : tensor<1x5x7x64xf32>
}}"""
    program = read_program(module.encode())
    plan = planned_in_blocks(program, 0)
    made = plan.nodes[0].makes[0].layout
    assert made.block in (32, 64), made
    network = Network(plan, program)
    network.poison()
    network.run(image)
    (found,) = network.run(image)
    np.testing.assert_allclose(found, image @ weights[0, 0] + start, rtol=1e-4, atol=1e-4)


def test_times_of_a_store_offer_no_blocks(blocky: tuple[Graph, Program]) -> None:
    _, program = blocky
    costs = Drawn(detect(), Random(0), 0.1)
    plan = planned(program.outline.graph, costs, Named("blocky", detect().canonical, "hot"))
    assert not any(use.layout.block for node in plan.nodes for use in node.reads)
    model = planned(program.outline.graph, DrawnInBlocks(detect(), Random(0), 0.1),
                    Named("blocky", detect().canonical, "hot"), "model")  # fmt: skip
    assert not any(use.layout.block for node in model.nodes for use in node.reads)


def test_a_plan_of_before_there_were_blocks_is_read(blocky: tuple[Graph, Program]) -> None:
    _, program = blocky
    costs = Drawn(detect(), Random(0), 0.1)
    plan = planned(program.outline.graph, costs, Named("blocky", detect().canonical, "hot"))

    def without(part: object) -> object:
        if isinstance(part, list | tuple):
            return [without(one) for one in part]
        if not isinstance(part, dict):
            return part
        return {name: without(one) for name, one in part.items() if name != "block"}

    assert Plan.from_json(json.loads(json.dumps(without(plan.to_json())))) == plan


def test_times_in_blocks_are_of_schedules_that_compute_the_same() -> None:
    problem = "conv2d:n=1,h=6,w=5,ci=64,co=64,kh=1,kw=1,dtype=f32,init=accumulate,weights=constant"
    schedule = Schedule((Pack("B"), Register(rows=3, cols=32)))

    class Costs(Drawn):
        def schedules(self, problem: str) -> tuple[Timed, ...]:
            return (timed(schedule, 1e9),)

    costs = Retimed(Costs(detect(), Random(0), 1.0), detect(), 1 << 16)
    (found,) = costs.in_blocks(problem, Blocks(32, 64))
    assert costs.in_blocks(problem, Blocks(32, 64)) == (found,)
    assert Schedule.from_json(list(found.steps)).register == schedule.register
    assert 0 < found.time_us < 1e9


def test_operands_are_laid_in_blocks() -> None:
    image = np.arange(2 * 3 * 4, dtype=np.float32).reshape(1, 2, 3, 4)
    laid = laid_in_blocks({"A": image, "C": image}, Blocks(2, 0))
    assert laid["C"] is image
    assert laid["A"].shape == (1, 2, 2, 3, 2)
    assert laid["A"][0, 1, 1, 2].tolist() == image[0, 1, 2, 2:].tolist()


def test_the_plain_image_is_offered_what_blocks_ask_for() -> None:
    """Else a faster register tile would count as a gain of blocks."""
    problem = "conv2d:n=1,h=14,w=14,ci=64,co=192,kh=1,kw=1,dtype=f32,weights=constant"
    wide = Schedule((Pack("B"), Tile("n", 1), Register(rows=7, cols=48)))
    costs = Retimed(Drawn(detect(), Random(0), 1.0), detect(), 1 << 16)
    lanes = detect().lanes("f32")
    if lanes < 16:
        pytest.skip("48 columns are no register tile of this processor's")
    changed = list(costs._changed(parse_problem(problem), [timed(wide, 1.0)]))
    tiles = {Schedule.from_json(list(one.steps)).register.cols for one, _ in changed}
    assert tiles == {32}
    assert {twin for _, twin in changed} == {wide.hash}
    assert list(costs._changed(parse_problem(problem + ",layout=nchw_fchw"), [])) == []
